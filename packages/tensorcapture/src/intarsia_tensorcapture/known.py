"""Tensors that a graph makes of constants alone: what they hold is known while the graph is recorded.

Such are the steps of a sampler, a table of a few offsets, and what is looked up in them. Where the program asks for a
number in one, for its truth, or for what has a size that depends on its data, the nodes that made it are run on real
tensors, and the answer is a constant: nothing breaks, and nothing is specialized that the graph doesn't hold anyway.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any

import torch
import torch.fx
from torch._ops import OpOverload, OpOverloadPacket
from torch.utils._python_dispatch import TorchDispatchMode

from intarsia_ir import meta
from intarsia_tensorcapture.described import tensors_in, version_of
from intarsia_tensorcapture.watching import is_of_torch_alone

__all__ = ["Known"]

_MOST = 4096  # numbers of a tensor: more of them are a batch of data, which takes long to compute here
_BUILTIN = (BuiltinFunctionType, MethodDescriptorType)


class Known:
    """What the nodes of a graph hold that are made of constants alone.

    Args:
        graph: The graph that is recorded.
    """

    def __init__(self, graph: torch.fx.Graph) -> None:
        self.graph = graph
        self._values: dict[torch.fx.Node, Any] = {}  # of those that were run
        self._seen: set[torch.fx.Node] = set()
        self._from_constants: dict[torch.fx.Node, bool] = {}
        self._spoiled = False

    def tensor(self, node: torch.fx.Node) -> torch.Tensor | None:
        """Return what a node's tensor holds now, on the CPU and not to be written; None where that isn't known."""
        if node.graph is not self.graph or not self._is_made_here(node):
            return None
        self._run_new()
        found = self._values.get(node)
        current = isinstance(found, torch.Tensor) and all(map(self._is_current, self._ancestors(node)))
        return found if current and not self._spoiled else None

    def result(self, kind: str, target: Any, args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Return what an operation gives for arguments that are known; None where it may be something else."""
        real = (*tensors_in(args), *tensors_in(tuple(keywords.values())))
        before = [tensor._version for tensor in real]
        function = getattr(torch.Tensor, target) if kind == "call_method" else target
        try:
            with torch.inference_mode(False), torch.no_grad(), _Predictable():  # type: ignore[no-untyped-call]
                found = function(*args, **keywords)
        except _UnpredictableError:
            found = None
            self._spoiled |= before != [tensor._version for tensor in real]
        except Exception:  # the graph raises it anew, when it runs
            found = None
            self._spoiled = True  # it may have written a part
        return found

    def _is_made_here(self, node: torch.fx.Node) -> bool:
        """Tell whether a node is computed from no input of the graph."""
        pending = [node]
        while pending:
            top = pending[-1]
            unknown = [one for one in top.all_input_nodes if one not in self._from_constants]
            if top.op in ("call_function", "call_method") and unknown:
                pending.extend(unknown)
                continue
            called = top.op in ("call_function", "call_method")
            self._from_constants[top] = called and all(self._from_constants[one] for one in top.all_input_nodes)
            pending.pop()
        return self._from_constants[node]

    def _ancestors(self, node: torch.fx.Node) -> set[torch.fx.Node]:
        found, pending = {node}, [node]
        while pending:
            new = [one for one in pending.pop().all_input_nodes if one not in found]
            found.update(new)
            pending.extend(new)
        return found

    def _is_current(self, node: torch.fx.Node) -> bool:
        """Tell whether whatever was written to what a node gave was written here as well."""
        ours, theirs = list(tensors_in(self._values.get(node))), list(tensors_in(meta.value(node)))
        return len(ours) == len(theirs) and list(map(version_of, ours)) == list(map(version_of, theirs))

    def _run_new(self) -> None:
        """Run the nodes of constants that were recorded since, in their order."""
        for node in self.graph.nodes:
            if node in self._seen:
                continue
            self._seen.add(node)
            if all(one in self._values for one in node.all_input_nodes) and _is_small(node):
                args, keywords = torch.fx.map_arg((node.args, dict(node.kwargs)), self._values.__getitem__)
                found = self.result(node.op, node.target, args, keywords)
                if _is_alike(found, meta.value(node)):
                    self._values[node] = found
                    continue
            if not _is_pure(node) or _writes(node):
                self._forget_memory_of(node.all_input_nodes)

    def _forget_memory_of(self, nodes: Sequence[torch.fx.Node]) -> None:
        """Forget what others may write without its being counted."""
        storages = {t.untyped_storage()._cdata for node in nodes for t in tensors_in(self._values.get(node))}
        for node, found in list(self._values.items()):
            if any(t.untyped_storage()._cdata in storages for t in tensors_in(found)):
                del self._values[node]


class _UnpredictableError(Exception):
    """An operation draws random numbers, reads memory that nobody wrote, or isn't torch's own."""


class _Predictable(TorchDispatchMode):
    """Refuses operators whose results aren't decided by their arguments, before they run."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run one operator."""
        name = func._schema.name.partition("::")[2]
        drawn = torch.Tag.nondeterministic_seeded in func.tags
        if drawn or not is_of_torch_alone(func) or name.startswith(("empty", "new_empty", "resize", "set_")):
            raise _UnpredictableError
        return func(*args, **(kwargs or {}))


def _is_small(node: torch.fx.Node) -> bool:
    """Tell whether a node is an operation of torch that gives a few numbers on the CPU, or writes them."""
    if node.op not in ("call_function", "call_method") or not _is_pure(node):
        return False
    given = list(tensors_in(meta.value(node)))
    fakes = [*given, *(fake for one in node.all_input_nodes for fake in tensors_in(meta.value(one)))]
    fits = all(fake.device.type == "cpu" and _n_numbers(fake) <= _MOST for fake in fakes)
    return fits and (bool(given) or node.target is operator.setitem)


def _n_numbers(fake: torch.Tensor) -> int:
    known = all(type(size) is int for size in fake.shape)
    return fake.numel() if known else _MOST + 1


def _is_pure(node: torch.fx.Node) -> bool:
    """Tell whether a node does nothing but compute, and write what it counts."""
    target: str | Callable[..., Any] = node.target
    if node.op not in ("call_function", "call_method"):
        return True
    if isinstance(target, str):
        return True
    if isinstance(target, (OpOverload, OpOverloadPacket)):
        return is_of_torch_alone(target)
    module = getattr(target, "__module__", None) or "torch"
    return isinstance(target, _BUILTIN) or module in ("_operator", "torch") or module.startswith("torch.nn.functional")


def _writes(node: torch.fx.Node) -> bool:
    """Tell whether a node may write what it is given, by its name."""
    name: str = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return "out" in node.kwargs or name.endswith("_") or name == "setitem" or name in _IN_PLACE


_IN_PLACE = frozenset(
    f"i{name}"
    for name in (
        *("add", "and", "floordiv", "lshift", "matmul", "mod", "mul"),
        *("or", "pow", "rshift", "sub", "truediv", "xor"),
    )
)


def _is_alike(found: Any, value: Any) -> bool:
    """Tell whether what was computed is what was recorded, in kind."""
    ours, theirs = list(tensors_in(found)), list(tensors_in(value))
    return len(ours) == len(theirs) and all(
        (a.shape, a.dtype, a.stride(), a.layout, a.device) == (b.shape, b.dtype, b.stride(), b.layout, b.device)
        for a, b in zip(ours, theirs, strict=True)
    )
