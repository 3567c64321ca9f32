"""The `intarsia` command: passes on text, explanations, comparisons with eager, the cache, what a machine lacks.

Each command is a function of a module of its own, and `main` gives them their names.

Example:
    >>> import torch
    >>> from intarsia_command import differences, outcome_of
    >>> expected = outcome_of(torch.sin, (torch.zeros(3),), {})
    >>> differences(expected, outcome_of(torch.sinh, (torch.zeros(3),), {}))
    ()
    >>> differences(expected, outcome_of(torch.sin, (torch.zeros(2),), {}))[0]
    'after the call, argument 0: torch.float32[2] on cpu instead of torch.float32[3] on cpu'
"""

from intarsia_command.debugging import debug
from intarsia_command.doctor import Finding, examine
from intarsia_command.exits import Exit
from intarsia_command.opt import apply_passes
from intarsia_command.outcomes import Outcome, differences, outcome_of
from intarsia_command.programs import Program, load

__version__ = "0.1.1"

__all__ = [
    "Exit",
    "Finding",
    "Outcome",
    "Program",
    "apply_passes",
    "debug",
    "differences",
    "examine",
    "load",
    "outcome_of",
]
