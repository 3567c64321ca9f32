"""FX(loops) as text and back; `intarsia_loops._text` has the form."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.fx as fx

from intarsia_loops._parse import parse_program
from intarsia_loops._text import program_text
from intarsia_loops.graph import from_fx, to_fx
from intarsia_loops.program import Program

__all__ = ["parse_ir", "print_ir"]


def print_ir(gm: fx.GraphModule | Program, *, made_by: str = "") -> str:
    """Return the text of a loops program.

    Args:
        gm: FX(loops), or the program itself.
        made_by: For the header: how the program was made.
    """
    return program_text(gm if isinstance(gm, Program) else from_fx(gm), "loops", made_by)


def parse_ir(text: str, *, constants: Mapping[str, torch.Tensor] | None = None) -> fx.GraphModule:
    """Return the loops program with this text; `parse_ir(print_ir(gm))` is the same program.

    Args:
        text: What `print_ir` gives.
        constants: Tensor of every constant; the text has only their types.

    Raises:
        InvalidArgumentError: The text is not of this form, with the line where it departs from it.
    """
    return to_fx(parse_program(text, "loops", constants))
