"""Symbols of torch's own shape environment, as another front end makes them, behind an environment of ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensor

from intarsia_ir import meta
from intarsia_ir.errors import InternalError, UnsupportedError
from intarsia_shapes.env import ShapeEnv
from intarsia_shapes.fake import fake_mode
from intarsia_shapes.pyexpr import python_text

__all__ = ["adopted"]


def adopted(gm: fx.GraphModule, inputs: Sequence[Any]) -> tuple[tuple[Any, ...], Callable[[], None]]:
    """Return `inputs` with symbols of a new environment of ours, and a function that gives back what it learns.

    Args:
        gm: The graph; its placeholders say what sizes of real inputs are symbols.
        inputs: Fake tensors and symbolic integers of torch's environment, real tensors, numbers, one for each
            placeholder. Without symbols among them they are returned as they are.

    Returns:
        The inputs; and what to call when compiling is done: it asks torch's environment every relation that ours
        relied on, so that the guards of the front end hold it, and closes ours.

    Raises:
        UnsupportedError: A size has no value at capture.
    """
    told = [meta.front_end_value(node) for node in gm.graph.find_nodes(op="placeholder")]
    values = [said if _symbolic(said) else given for said, given in zip(told, inputs, strict=True)]
    foreign = next((number for value in values for number in _symbolic(value)), None)
    if foreign is None:
        return tuple(inputs), lambda: None
    adoption = _Adoption(foreign.node.shape_env)
    return tuple(adoption.value(value) for value in values), adoption.give_back


def _symbolic(value: Any) -> list[Any]:
    """Return the symbolic integers of torch's environment in a value."""
    numbers = [value]
    if isinstance(value, FakeTensor):
        numbers = [*value.shape, *value.stride(), value.storage_offset()]
    return [n for n in numbers if isinstance(n, torch.SymInt) and not isinstance(n.node.shape_env, ShapeEnv)]


class _Adoption:
    def __init__(self, foreign: Any) -> None:
        self.foreign = foreign
        self.env = ShapeEnv()
        self.mode = fake_mode(self.env)
        self.own: dict[Any, Any] = {}  # torch's symbol -> our expression
        self.theirs: dict[str, Any] = {}  # name of our symbol -> torch's number
        self.relations: list[Any] = []  # what our symbols are made with

    def value(self, value: Any) -> Any:
        if isinstance(value, torch.SymInt):
            return self.number(value)
        if not _symbolic(value) and not isinstance(value, FakeTensor):
            return self.mode.from_tensor(value, static_shapes=True) if isinstance(value, torch.Tensor) else value
        size, stride = map(self.number, value.shape), map(self.number, value.stride())
        with self.mode:
            tensor = torch.empty_strided(tuple(size), tuple(stride), dtype=value.dtype, device=value.device)
            return tensor.requires_grad_(value.requires_grad)

    def number(self, number: Any) -> Any:
        if not isinstance(number, torch.SymInt):
            return number
        for symbol in number.node.expr.free_symbols:
            if symbol not in self.own:
                self._adopt(symbol)
        expr = number.node.expr.xreplace(self.own)
        return int(expr) if expr.is_number else torch.SymInt(self.env.node(expr, int, number.node.hint))

    def _adopt(self, symbol: Any) -> None:
        hint = self.foreign.backed_var_to_val.get(symbol)
        if hint is None:
            raise UnsupportedError(f"the size {symbol} has no value at capture", code="shapes.foreign")
        theirs = self.foreign.create_symintnode(symbol, hint=int(hint))
        size = self.env.create_size(int(hint), str(symbol), duck=False)
        if isinstance(size, torch.SymInt):
            self.own[symbol] = size.node.expr
            self.theirs[str(size.node.expr)] = theirs
            self.relations.append(theirs >= self.env.smallest_size)
        else:
            self.own[symbol] = self.env.node(hint, int, int(hint)).expr
            self.relations.append(theirs == size)

    def give_back(self) -> None:
        self.env.closed = True
        for given in self.relations:
            _rely_on(bool(given), str(given))
        for relation in self.env.guards:
            text = python_text(relation.expr)
            _rely_on(bool(eval(text, {"math": math, "max": torch.sym_max, "min": torch.sym_min}, self.theirs)), text)


def _rely_on(holds: bool, text: str) -> None:
    if not holds:
        raise InternalError(f"{text} was relied on, and doesn't hold at capture", code="shapes.foreign")
