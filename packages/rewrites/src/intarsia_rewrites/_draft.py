"""A private copy of a program while a pass edits it: fuel, origins, and who shares memory with whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.utils import _pytree as pytree

from intarsia_ir import aten, meta
from intarsia_ir import torch as torch_dialect
from intarsia_ir.dialects import dialect_of
from intarsia_ir.errors import InvalidArgumentError

__all__ = ["Draft", "check_torch", "copy_graph", "edit_torch"]


def check_torch(gm: fx.GraphModule) -> None:
    """Check that a graph is FX(torch), and not FX(aten), in which a pass over torch calls would find nothing.

    Raises:
        VerifyError: It breaks the rules of the torch dialect.
        InvalidArgumentError: `rewrites.dialect`: it has calls, of other dialects all.
    """
    torch_dialect.verify(gm, origins=False)
    if (dialect := dialect_of(gm)) not in ("", "torch"):
        raise InvalidArgumentError(
            f"this is FX({dialect}): what this pass looks for is in FX(torch) only, before a graph is recorded",
            code="rewrites.dialect",
        )


def edit_torch(
    gm: fx.GraphModule,
    choose: Callable[[fx.Graph], Iterable[fx.Node]],
    edit: Callable[[fx.Graph, fx.Node], None],
    *,
    fuel: int | None,
    check: bool,
) -> fx.GraphModule:
    """Return FX(torch) with the nodes that are chosen edited in a copy; the given graph where none is.

    Args:
        gm: FX(torch) with values on its nodes.
        choose: Returns the nodes to edit, in program order.
        edit: Edits one of them, in the copy.
        fuel: Number of nodes that may be edited; None: all.
        check: Whether to verify the dialect on entry and exit.

    Raises:
        VerifyError: `gm` isn't FX(torch).
        InvalidArgumentError: `fuel` is negative.
    """
    if fuel is not None and fuel < 0:
        raise InvalidArgumentError(f"fuel must not be negative, but is {fuel}", code="rewrites.fuel")
    if check:
        check_torch(gm)
    chosen = [node.name for node in choose(gm.graph)][:fuel]
    if not chosen:
        return gm
    graph = copy_graph(gm.graph)
    for node in list(graph.nodes):
        if node.name in chosen:
            edit(graph, node)
    result = fx.GraphModule(gm, graph)
    if check:
        torch_dialect.verify(result, origins=False)
    return result


class Draft:
    """Edits a copy of `gm.graph`; `finish` wraps it once.

    Args:
        gm: FX(aten), pure. It isn't changed.
        fuel: Number of edits allowed; None: any number.
        check: Whether to verify on entry and exit.

    Attributes:
        graph: The copy.
        root: What get_attr nodes refer to: the module, and constants added since.
        fired: How often each rule was used, by name.

    Raises:
        VerifyError: `check` is on, and `gm` isn't FX(aten), pure.
        InvalidArgumentError: `fuel` is negative.
    """

    def __init__(self, gm: fx.GraphModule, fuel: int | None, check: bool) -> None:
        if fuel is not None and fuel < 0:
            raise InvalidArgumentError(f"fuel must not be negative, but is {fuel}", code="rewrites.fuel")
        self._fuel, self._check, self._given = fuel, check, gm
        self._origins = all(meta.origins(n) for n in gm.graph.nodes if n.op == "call_function")
        if check:
            aten.verify(gm, functional=True, origins=False)
        self.graph = copy_graph(gm.graph)
        self.root: dict[str, Any] = {n.target: _attribute(gm, n.target) for n in gm.graph.nodes if n.op == "get_attr"}
        self.fired: Counter[str] = Counter()
        self._escaping = self._roots_of_results()
        self._has_addresses = any(_depends_on_place(n.target) for n in self.graph.nodes)

    def burn(self, rule: str) -> bool:
        """Use up fuel for one edit by `rule`; False when there is none left."""
        if self._fuel is not None:
            if self._fuel == 0:
                return False
            self._fuel -= 1
        self.fired[rule] += 1
        return True

    @property
    def exhausted(self) -> bool:
        """Whether no edit is allowed any more."""
        return self._fuel == 0

    def may_replace(self, old: fx.Node, new: fx.Node) -> bool:
        """Tell whether `new`, which has the same value, can stand for `old` without results sharing more memory.

        A caller may write to a result afterwards, so a result that had storage of its own must keep that: `old`
        must not reach a result, or share its memory with `new` already, or `new` must be storage that neither an
        input, nor a constant, nor another result uses. Nor may what a call addresses by its place in its storage, as
        `as_strided` does, come to lie elsewhere in another one: an input may begin anywhere in its own.
        """
        before, after = roots(old), roots(new)
        if before == after:
            return True
        if self._has_addresses and _is_addressed(old):
            return False
        if not before & self._escaping:
            return True
        return not any(n.op in ("placeholder", "get_attr") or n in self._escaping for n in after)

    def replace(self, old: fx.Node, new: fx.Node, also: Collection[fx.Node] = ()) -> list[fx.Node]:
        """Let every user of `old` use `new`, and erase what nobody uses any more; `new` takes the origins of both.

        Args:
            old: A node.
            new: Another one.
            also: What may be erased even though it may raise: `new` stands for it as well.

        Returns:
            What was erased.
        """
        if roots(old) & self._escaping:
            self._escaping |= roots(new)
        old.replace_all_uses_with(new)
        erased = self.erase_unused(old, also)
        if new.op == "call_function":
            meta.set_origins(new, meta.merge_origins(new, *reversed(erased), old))
        return erased

    def insert_call(self, before: fx.Node, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.Node:
        """Insert a call that computes the value of `before`, with its metadata, but without origins yet."""
        with self.graph.inserting_before(before):
            node = self.graph.call_function(target, args, kwargs)
        node.meta = dict(before.meta)
        meta.set_origins(node, ())
        return node

    def insert_computed(
        self, before: fx.Node, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], source: fx.Node
    ) -> fx.Node:
        """Insert a call in front of `before`, with the value that it gives and the origins of `source`."""
        node = self.insert_call(before, target, args, kwargs)
        like = meta.value(before) if meta.has_value(before) else None  # an output may have none
        meta.set_value(node, value_of(node, like))
        meta.set_origins(node, meta.origins(source))
        return node

    def insert_constant(self, before: fx.Node, value: torch.Tensor) -> fx.Node:
        """Insert a node that holds `value`, in front of all calls, with the metadata of `before`."""
        name = next(n for k in range(len(self.root) + 1) if (n := f"_folded{k}") not in self.root)
        self.root[name] = value
        first = next(n for n in self.graph.nodes if n.op != "placeholder")
        with self.graph.inserting_before(first):
            node = self.graph.create_node("get_attr", name, (), {})
        node.meta = dict(before.meta)
        return node

    def erase_unused(self, node: fx.Node, also: Collection[fx.Node] = ()) -> list[fx.Node]:
        """Erase `node` and the operands that only it used, as far as nobody would notice; return what was erased."""
        waiting, erased = [node], []
        while waiting:
            node = waiting.pop()
            if not node.users and (node in also or is_removable(node)):
                waiting += node.all_input_nodes
                self.graph.erase_node(node)
                erased.append(node)
        return erased

    def finish(self) -> fx.GraphModule:
        """Return the edited program; the given one if there was no edit.

        Raises:
            VerifyError: The edits broke the dialect's rules (a bug of the pass).
        """
        if not self.fired:
            return self._given
        used = {n.target for n in self.graph.nodes if n.op == "get_attr"}
        # generates its code when called: that takes longer than all edits, and most graphs never need it
        gm: fx.GraphModule = _LazyGraphModule({n: v for n, v in self.root.items() if n in used}, self.graph)
        if self._check:
            aten.verify(gm, functional=True, origins=self._origins)
        return gm

    def _roots_of_results(self) -> set[fx.Node]:
        (output,) = self.graph.find_nodes(op="output")
        return {root for result in output.all_input_nodes for root in roots(result)}


def value_of(node: fx.Node, like: Any = None) -> Any:
    """Return what a call gives for the fake values of its operands; without any, under the fake mode of `like`."""
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), meta.value)  # type: ignore[misc,arg-type]
    mode = next(v.fake_mode for v in pytree.tree_leaves((args, kwargs, like)) if isinstance(v, FakeTensor))
    with mode, torch.no_grad():
        return node.target(*args, **kwargs)  # type: ignore[operator]


def is_removable(node: fx.Node) -> bool:
    """Tell whether a node without users can be dropped: it is no input, draws no numbers, checks nothing."""
    if node.op == "get_attr":
        return True
    return node.op == "call_function" and aten.node_effects(node).removable


_ALIGNED = frozenset({torch.ops.aten.view.dtype, torch.ops.aten.view_as_complex.default})
"""Calls that take an operand only where it begins at a whole element of another type."""


def _depends_on_place(target: Any) -> bool:
    """Tell whether it matters to a call where in its storage an operand begins."""
    return target in _ALIGNED or aten.counts_from_storage(target)


def _is_addressed(node: fx.Node) -> bool:
    """Tell whether it matters to a call where in its storage a node, or a view of it, begins."""
    return any(
        _depends_on_place(user.target) or (node in aten.viewed_nodes(user) and _is_addressed(user))
        for user in node.users
    )


def roots(node: fx.Node) -> frozenset[fx.Node]:
    """Return the nodes whose storage `node` is, or is a view of; results of one op count as one storage."""
    found, waiting = set(), [node]
    while waiting:
        node = waiting.pop()
        bases = aten.viewed_nodes(node)
        waiting += bases
        if not bases:
            found.add(node)
    return frozenset(found)


def can_leave(fuel: int | None, check: bool) -> bool:
    """Tell whether a rewrite that finds nothing may leave without a draft, which would copy and check it all."""
    return not check and (fuel is None or fuel >= 0)


def copy_graph(graph: fx.Graph) -> fx.Graph:
    """Return a copy of a graph, node by node, with its metadata."""
    new = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        copies[node] = new.node_copy(node, lambda n: copies[n])
        copies[node].meta = dict(node.meta)
    return new


def _attribute(root: Any, path: str) -> Any:
    for name in path.split("."):
        root = getattr(root, name)
    return root
