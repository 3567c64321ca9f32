"""Graphs within the graph: what a function computes that another one is given, such as a transform of `torch.func`.

While such a function is evaluated, nodes go to a graph of its own. What it reads from outside becomes an input of that
graph and an operand of the node that will hold it. What is computed inside is known inside only: a tensor that gets out
by a side effect has no node there, and breaks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import unset_fake_temporarily

from intarsia_ir import meta
from intarsia_pyeval.breaks import Break, Unreconstructable
from intarsia_tensorcapture.described import tensors_in, version_of

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["Scope", "Scopes", "apart", "writes_of"]


_TRANSFORMS: Any = torch._C._functorch


class Scope:
    """One function: its graph, and what it reads from outside.

    Attributes:
        graph: Its nodes.
        free: Nodes outside -> inputs of the graph that stand for them, in order.
        seen: The same -> how often their tensors were written when they were read first.
        at_points: Whether the function is called at points, whose place is in tensors of no dimension.
    """

    def __init__(self) -> None:
        self.graph = torch.fx.Graph()
        self.free: dict[torch.fx.Node, torch.fx.Node] = {}
        self.seen: dict[torch.fx.Node, tuple[int, ...]] = {}
        self.at_points = False
        self._last: torch.fx.Node | None = None

    def add_input(self, name: str) -> torch.fx.Node:
        """Add an input behind those that there are."""
        first = next(iter(self.graph.nodes), None)
        place = self.graph.inserting_after(self._last) if self._last is not None else self.graph.inserting_before(first)
        with place:
            node = self._last = self.graph.placeholder(name)
        node.target = node.name
        return node

    def program(self, results: tuple[torch.fx.Node, ...]) -> torch.fx.GraphModule:
        """Close the graph. Its values were those of one evaluation, which is over."""
        self.graph.output(results)
        for node in self.graph.nodes:
            meta.drop_value(node)
        return torch.fx.GraphModule(torch.nn.Module(), self.graph)


class Scopes:
    """The functions that are being evaluated, the innermost one last.

    Args:
        root: The graph of the capture.
    """

    def __init__(self, root: torch.fx.Graph) -> None:
        self.root = root
        self.open: list[Scope] = []
        self._closed: dict[torch.fx.Graph, int] = {}  # -> the outermost step that it belongs to

    @property
    def graph(self) -> torch.fx.Graph:
        """The graph that nodes go to."""
        return self.open[-1].graph if self.open else self.root

    @contextlib.contextmanager
    def scope(self, tx: Tracer) -> Iterator[Scope]:
        """Evaluate a function in the block."""
        made = Scope()
        self.open.append(made)
        try:
            yield made
        finally:
            self.open.pop()
            self._closed[made.graph] = tx.steps.now

    def here(self, argument: Any) -> Any:
        """Return what stands for an argument of a node in the innermost graph.

        Raises:
            Break: It is a tensor of a function that has returned.
        """
        if not isinstance(argument, torch.fx.Node) or argument.graph is self.graph:
            return argument
        return self._lifted(argument, len(self.open))

    def _lifted(self, node: torch.fx.Node, depth: int) -> torch.fx.Node:
        if depth == 0:
            if node.graph is not self.root:
                raise Break("tracer.tensor_op", "a tensor is used outside of the function that it is of")
            return node
        scope = self.open[depth - 1]
        if node.graph is scope.graph:
            return node
        outer = self._lifted(node, depth - 1)
        found = scope.free.get(outer)
        if found is None:
            _refuse_data(outer)
            found = scope.free[outer] = scope.add_input(outer.name)
            scope.seen[outer] = writes_of(outer)
            meta.set_origins(found, meta.origins(outer))
            if meta.has_value(outer):
                meta.set_value(found, meta.value(outer))
        return found

    def may_give(self, node: torch.fx.Node) -> bool:
        """Tell that a tensor can be a result of the capture.

        Raises:
            Unreconstructable: It is one of a function that has returned.
        """
        if node.graph is not self.root:
            birth = self._closed.get(node.graph, -1)
            raise Unreconstructable("a tensor gets out of a function within the graph by a side effect", birth)
        return True


def _refuse_data(node: torch.fx.Node) -> None:
    """Break where a number in a tensor is used as a size in a function: the size is known where the function is not."""
    number = meta.value(node) if meta.has_value(node) else None
    if isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)) and number.node.hint is None:
        raise Break("tracer.data_dependent", f"{node} depends on data, and is used in a function within the graph")


def writes_of(node: torch.fx.Node) -> tuple[int, ...]:
    """Return how often the tensors of a node were written."""
    return tuple([version_of(tensor) for tensor in tensors_in(meta.value(node))]) if meta.has_value(node) else ()


@contextlib.contextmanager
def apart(scopes: Scopes) -> Iterator[None]:
    """Make fake tensors of what exists outside of all transforms, whichever is being evaluated."""
    if not scopes.open:
        yield
        return
    allowed, disabled = _TRANSFORMS.get_inplace_requires_grad_allowed(), torch._C._DisableFuncTorch()
    _TRANSFORMS.set_inplace_requires_grad_allowed(True)
    try:
        with unset_fake_temporarily():
            yield
    finally:
        _TRANSFORMS.set_inplace_requires_grad_allowed(allowed)
        del disabled
