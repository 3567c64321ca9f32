"""`fold_values`: what is computed from known inputs alone is computed once, and stored.

    graph(%x, %w, %b) {                                   graph(%x, %w, %b) {
      %1 = aten.clone.default(%w, memory_format=...)        %1 = _folded0
      %2 = aten.convolution.default(%x, %1, %b, ...)  ->    %2 = aten.convolution.default(%x, %1, %b, ...)
      return (%2,)                                          return (%2,)

Inputs stay inputs, so that a value which is only read is not held twice; views of them stay, too, for they cost
nothing. What was read is told, so that the caller can guard it.

Side conditions. Calls are repeatable, raise nothing, belong to torch and give tensors of known size; a result of the
program, which its caller may write to, is computed anew each time; what is stored is not larger than twice what it was
computed from, and a megabyte. Law: a repeatable call gives the same value for the same operands.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from intarsia_ir import aten, meta
from intarsia_ir.errors import InvalidArgumentError
from intarsia_rewrites._draft import Draft, roots
from intarsia_rewrites._known import known_nodes
from intarsia_rewrites._rules import tensor_of

__all__ = ["StoredValues", "fold_values"]

MOST_TIMES, MOST_BYTES_BESIDE = 2, 1 << 20
"""What is stored has so many times the bytes that it is computed from at most, and so many more."""


@dataclass(frozen=True, slots=True)
class StoredValues:
    """A program with stored values.

    Args:
        graph_module: FX(aten), pure; stored tensors are attributes of it.
        read: Names of the inputs whose values it holds for, in their order.
    """

    graph_module: fx.GraphModule
    read: tuple[str, ...]


def fold_values(
    gm: fx.GraphModule, *, values: Mapping[str, torch.Tensor], fuel: int | None = None, check: bool = True
) -> StoredValues:
    """Return `gm` with what follows from `values` computed and stored.

    Args:
        gm: FX(aten), pure, with fake values on its nodes (`meta["val"]`).
        values: Name of an input -> its value, for those that stay: weights of a frozen model. They are read, on their
            devices, without gradients.
        fuel: Number of calls whose value may be stored, last ones first; None: all.
        check: Whether to verify the dialect on entry and exit.

    Returns:
        The graph, the given one when there is nothing to do, and what was read.

    Raises:
        VerifyError: `gm` isn't FX(aten), pure.
        InvalidArgumentError: `fuel` is negative, or a value has not the type and shape of the input.

    Example:
        >>> from intarsia_ir.aten import parse_ir
        >>> gm = parse_ir('''// dialect: aten 2
        ... graph(%x: f32[2], %w: f32[2], %b: f32[2]) {
        ...   %0: f32[2] = aten.exp.default(%w)
        ...   %1: f32[2] = aten.mul.Tensor(%x, %0)
        ...   %2: f32[2] = aten.add.Tensor(%1, %b)
        ...   return (%2,)
        ... }
        ... ''')
        >>> folded = fold_values(gm, values={"w": torch.zeros(2), "b": torch.zeros(2)})
        >>> [n.name for n in folded.graph_module.graph.nodes if n.op == "get_attr"], folded.read
        (['_folded0'], ('w',))
    """
    draft = Draft(gm, fuel, check)
    inputs = {node: values[node.name] for node in draft.graph.find_nodes(op="placeholder") if node.name in values}
    for node, value in inputs.items():
        _check(node, value)
    store = _Store(draft, inputs)
    chosen = _chosen(draft.graph, known_nodes(draft.graph, values), store)
    with _plain():
        for node in chosen:
            store.fold(node)
    return StoredValues(draft.finish(), tuple(node.name for node in inputs if node in store.read))


def _check(node: fx.Node, value: torch.Tensor) -> None:
    like = meta.value(node)
    if (value.dtype, value.device.type) != (like.dtype, like.device.type) or value.shape != like.shape:
        raise InvalidArgumentError(
            f"the value of {node.name} is {value.dtype}{list(value.shape)}, not {like.dtype}{list(like.shape)}",
            code="rewrites.value",
        )


def _chosen(graph: fx.Graph, constants: set[fx.Node], store: _Store) -> list[fx.Node]:
    """Return the calls to store, the last ones first: of those whose values are known, what others read."""
    chosen, wanted = [], set[fx.Node]()
    for node in reversed(graph.nodes):
        if node not in constants or node in wanted:
            if node in constants and store.may_hold(node):
                chosen.append(node)
            else:
                wanted.update(node.all_input_nodes)
    return chosen


class _Store:
    """Computes values of calls, and puts constants in their place.

    Args:
        draft: The program.
        inputs: Input -> its value.

    Attributes:
        read: The inputs that were read.
    """

    def __init__(self, draft: Draft, inputs: Mapping[fx.Node, torch.Tensor]) -> None:
        self._draft, self._inputs = draft, inputs
        self._values: dict[fx.Node, Any] = {}
        self._leaves: dict[fx.Node, frozenset[fx.Node]] = {}
        self.read: set[fx.Node] = set()

    def may_hold(self, node: fx.Node) -> bool:
        """Tell whether the value of a call is worth its memory: it reads inputs, and is no view of one."""
        value = tensor_of(node)
        if node.op != "call_function" or value is None:
            return False
        if aten.viewed_nodes(node) and all(root.op != "call_function" for root in roots(node)):
            return False
        leaves = self._inputs_of(node)
        read = sum(_n_bytes(leaf) for leaf in leaves)
        return bool(leaves) and _n_bytes(node) <= MOST_TIMES * read + MOST_BYTES_BESIDE

    def fold(self, node: fx.Node) -> None:
        """Compute the value of a call and let its users read that, unless a result of the program shares its memory."""
        leaves = self._inputs_of(node)
        value = self._value(node)
        like = meta.value(node)
        if value.dtype != like.dtype or value.shape != like.shape:
            return
        new = self._draft.insert_constant(node, _laid_out(value, like))
        if self._draft.may_replace(node, new) and self._draft.burn("value"):
            self._draft.replace(node, new)
            self.read |= leaves
        else:
            self._draft.erase_unused(new)

    def _inputs_of(self, node: fx.Node) -> frozenset[fx.Node]:
        """Return the inputs that a value follows from."""
        if node not in self._leaves:
            inputs = [self._inputs_of(operand) for operand in node.all_input_nodes]
            self._leaves[node] = frozenset([node]) if node in self._inputs else frozenset().union(*inputs)
        return self._leaves[node]

    def _value(self, node: fx.Node) -> Any:
        if node in self._inputs:
            return self._inputs[node].detach()
        if node.op == "get_attr":
            return self._draft.root[str(node.target)]
        if node not in self._values:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), self._value)  # type: ignore[misc, arg-type]
            self._values[node] = node.target(*args, **kwargs)  # type: ignore[operator]
        return self._values[node]


@contextlib.contextmanager
def _plain() -> Iterator[None]:
    """Run calls as they were recorded: below autograd and autocast, and so that what they give can be kept."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        for device in ("cpu", "cuda"):
            stack.enter_context(torch.autocast(device, enabled=False))
        yield


def _laid_out(value: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return a tensor of its own with the elements of `value` and the strides of `like`."""
    once = [min(size, 1) if stride == 0 else size for size, stride in zip(like.shape, like.stride(), strict=True)]
    stored = torch.empty_strided(once, like.stride(), dtype=like.dtype, device=value.device)
    stored.copy_(value[tuple([slice(size) for size in once])])
    return stored.expand(like.shape)


def _n_bytes(node: fx.Node) -> int:
    value = meta.value(node)
    return int(value.numel()) * int(value.dtype.itemsize)
