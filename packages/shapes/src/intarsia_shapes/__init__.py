"""Symbolic sizes behind `torch.SymInt`: our own shape environment and node, with frozen facts.

Usable alone, with a plain FakeTensorMode, by anyone who only wants symbolic shape inference. Takes tensors, gives
fake tensors with symbolic sizes and, at the end, `SizeFacts`.

Example:
    >>> import torch
    >>> from intarsia_shapes import ShapeEnv, fake_mode, fakeify, freeze
    >>> env = ShapeEnv()
    >>> mode = fake_mode(env)
    >>> x = fakeify(mode, torch.empty(6, 5), "x", dynamic=(0, 1))
    >>> with mode:
    ...     y = x.view(-1, 2)
    >>> freeze(env).facts[0].relation
    '(((s0 * s1) % 2) == 0)'
"""

from intarsia_shapes.confine import confine
from intarsia_shapes.env import Relation, ShapeEnv
from intarsia_shapes.facts import (
    FrozenEnv,
    check_source,
    describe_facts,
    facts_behind,
    freeze,
    join_facts,
    promises_behind,
)
from intarsia_shapes.fake import fake_mode, fakeify
from intarsia_shapes.foreign import adopted
from intarsia_shapes.marks import Mark, check_marks, mark_dynamic, mark_static, marks_of
from intarsia_shapes.node import SymNode
from intarsia_shapes.pyexpr import plain_size, python_text
from intarsia_shapes.thaw import thawed

__all__ = [
    "FrozenEnv",
    "Mark",
    "Relation",
    "ShapeEnv",
    "SymNode",
    "adopted",
    "check_marks",
    "check_source",
    "confine",
    "describe_facts",
    "facts_behind",
    "fake_mode",
    "fakeify",
    "freeze",
    "join_facts",
    "mark_dynamic",
    "mark_static",
    "marks_of",
    "plain_size",
    "promises_behind",
    "python_text",
    "thawed",
]
__version__ = "0.1.1"
