"""Building a random graph while running it, so that every node is known to be legal and its values are known.

A value is `exact` when it is computed without rounding from the inputs. Ops that jump (comparisons, floor, argmax,
casts to integers) are applied to exact values only: a legal difference in rounding must not flip them.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
import torch.fx as fx
from hypothesis import strategies as st
from torch._subclasses import FakeTensor, FakeTensorMode

from intarsia_ir import Origin, meta
from intarsia_testkit.strategies import TensorSpec

__all__ = ["Builder", "Item"]

T = TypeVar("T")
LARGEST = 1.0e4
MAX_ELEMENTS = 600


@functools.cache
def _shared_mode() -> FakeTensorMode:
    """One fake mode for all programs: making one costs more than making a program."""
    return FakeTensorMode()


@dataclass(eq=False, slots=True)
class Item:
    """One tensor of the program under construction.

    Args:
        node: Its node.
        value: Its value for the first input set.
        exact: Whether it is computed without rounding.
        index: Whether its values are 0 or 1, fit to be indices.
        is_input: Whether it is a placeholder.
    """

    node: fx.Node
    value: torch.Tensor
    exact: bool = True
    index: bool = False
    is_input: bool = False

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return self.value.dim()


@dataclass(slots=True)
class Builder:
    """A graph that grows by running.

    Args:
        draw: Given by Hypothesis.
        specs: The inputs.
        values: Whether nodes carry fake values (FX(aten) needs them).
        seed: Which input values the program is run on.
    """

    draw: st.DrawFn
    specs: Sequence[TensorSpec]
    values: bool = True
    seed: int = 0
    graph: fx.Graph = field(default_factory=fx.Graph)
    items: list[Item] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    fake_mode: FakeTensorMode = field(default_factory=_shared_mode)

    def add_inputs(self) -> None:
        """Add one placeholder per spec."""
        for position, spec in enumerate(self.specs):
            value = spec.make(self.seed + position)
            node = self.graph.placeholder(f"x{position}")
            self._note(node, value)
            self.items.append(Item(node, value, index=spec.index, is_input=True))

    def pick(self, condition: Callable[[Item], bool]) -> Item | None:
        """Draw one of the tensors that satisfy `condition`, late ones preferred; None when there is none."""
        fitting = [item for item in self.items if condition(item)]
        if not fitting:
            return None
        return fitting[-1 - self.below(len(fitting))]

    def choose(self, options: Sequence[T]) -> T:
        """Draw one of `options`."""
        return options[self.below(len(options))]

    def below(self, n: int, start: int = 0) -> int:
        """Draw an integer from `start` to `n - 1`."""
        return self.draw(_between(start, n - 1))

    def flag(self) -> bool:
        """Draw a bool."""
        return bool(self.below(2))

    def call(self, target: Any, *args: Any, exact: bool, index: bool = False, **kwargs: Any) -> bool:
        """Add a call and run it; refuse (and add nothing) when its result is too large to be a good test.

        Args:
            target: An overload or function; a string is a method.
            args: Items stand for their nodes.
            exact: Whether the op itself rounds nothing; the result is exact when its operands are, too.
            index: Whether the result's values are 0 or 1.
            kwargs: As `args`.
        """
        used = [a for a in _leaves((args, tuple(kwargs.values()))) if isinstance(a, Item)]
        real_args, real_kwargs = _replace(args, "value"), _replace(kwargs, "value")
        result = (
            getattr(real_args[0], target)(*real_args[1:], **real_kwargs)
            if isinstance(target, str)
            else target(*real_args, **real_kwargs)
        )
        if not all(map(_tame, _leaves(result))):
            return False
        op = "call_method" if isinstance(target, str) else "call_function"
        node = self.graph.create_node(op, target, _replace(args, "node"), _replace(kwargs, "node"))
        self._note(node, result)
        self.names.append(target if isinstance(target, str) else str(getattr(target, "__name__", target)))
        self._add_results(node, result, exact and all(item.exact for item in used), index)
        return True

    def note_call(self, target: Any, args: tuple[Any, ...]) -> fx.Node:
        """Add a call that the caller has run, one with no value: what opens or closes a region."""
        node = self.graph.call_function(target, args)
        meta.set_origins(node, [Origin("program.py", len(self.graph.nodes), "program", node.name)])
        self.names.append(target.__name__)
        return node

    def _add_results(self, node: fx.Node, result: Any, exact: bool, index: bool) -> None:
        if isinstance(result, torch.Tensor):
            # an in-place op returns its argument, which now has two names; both stay usable
            self.items.append(Item(node, result, exact, index))
            return
        for position, item in enumerate(result if isinstance(result, (tuple, list)) else ()):
            picked = self.graph.call_function(operator.getitem, (node, position))
            self._note(picked, item)
            self.items.append(Item(picked, item, (exact and item.is_floating_point()) or not item.is_floating_point()))

    def _note(self, node: fx.Node, value: Any) -> None:
        if node.op != "placeholder":
            meta.set_origins(node, [Origin("program.py", len(self.graph.nodes), "program", node.name)])
        if self.values:
            meta.set_value(node, fx.node.map_aggregate(value, self._fake))

    def _fake(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        shape, strides, offset = value.shape, value.stride(), value.storage_offset()
        extent = max(offset + sum((n - 1) * s for n, s in zip(shape, strides)) + 1, offset, 0)
        storage = torch.empty(extent, dtype=value.dtype, device="meta")
        return FakeTensor(self.fake_mode, storage.as_strided(shape, strides, offset), value.device)

    def finish(self, results: Sequence[Item]) -> fx.GraphModule:
        """Return the graph with these results."""
        self.graph.output(tuple(item.node for item in results))
        return fx.GraphModule(torch.nn.Module(), self.graph)


@functools.cache
def _between(low: int, high: int) -> st.SearchStrategy[int]:
    """Making and validating a strategy costs more than drawing from it."""
    return st.integers(low, high)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


def _replace(value: Any, what: str) -> Any:
    """Replace every Item by its node or its value."""
    if isinstance(value, Item):
        return getattr(value, what)
    if isinstance(value, (tuple, list)):
        return type(value)(_replace(item, what) for item in value)
    if isinstance(value, dict):
        return {key: _replace(item, what) for key, item in value.items()}
    return value


def _tame(value: Any) -> bool:
    """Whether a result is small and finite: infinities and huge numbers make every later comparison pass."""
    if not isinstance(value, torch.Tensor):
        return True
    if value.numel() > MAX_ELEMENTS:
        return False
    return value.numel() == 0 or bool(value.detach().abs().max() <= LARGEST) if value.dtype != torch.bool else True
