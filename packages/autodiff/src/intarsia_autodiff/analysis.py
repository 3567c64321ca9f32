"""What a partition has to know of a joint graph: what depends on tangents, what may be saved, computed again, dropped.

Terms: the *backward* nodes are those that depend on a tangent; everything else the forward graph can compute. A
value is *copied* when it's saved, instead of being saved itself, if its memory may change before the backward pass
without eager's autograd objecting.
"""

from __future__ import annotations

import math
import operator
from functools import cached_property
from typing import Any

import torch
import torch.fx as fx
from torch._ops import OpOverload

from intarsia_autodiff.problem import Problem, Recompute, Value
from intarsia_ir import aten as aten_dialect
from intarsia_ir import meta
from intarsia_ir.errors import InvalidArgumentError, UnsupportedError
from intarsia_ir.records import AliasOfOutput, Fresh, OutputSpec, Role
from intarsia_ir.values import Recorded

__all__ = ["Analysis"]

aten = torch.ops.aten

# one pass over memory, but not pointwise by torch's tags
_ONE_PASS = frozenset(
    {
        aten._to_copy.default,
        aten.arange.default,
        aten.arange.start,
        aten.arange.start_step,
        aten.cat.default,
        aten.clone.default,
        aten.constant_pad_nd.default,
        aten.copy.default,
        aten.empty.memory_format,
        aten.empty_like.default,
        aten.empty_strided.default,
        aten.flip.default,
        aten.full.default,
        aten.full_like.default,
        aten.new_empty.default,
        aten.new_full.default,
        aten.new_ones.default,
        aten.new_zeros.default,
        aten.ones.default,
        aten.ones_like.default,
        aten.repeat.default,
        aten.scalar_tensor.default,
        aten.select_scatter.default,
        aten.slice_scatter.default,
        aten.stack.default,
        aten.tril.default,
        aten.triu.default,
        aten.where.self,
        aten.zeros.default,
        aten.zeros_like.default,
    }
)
_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "convolution", "_scaled_dot_product", "linear", "mkldnn")


class Analysis:
    """Facts about one joint graph.

    Args:
        joint: A functional joint graph.

    Raises:
        InvalidArgumentError: It isn't one.
        UnsupportedError: Its backward pass can't be split off.
    """

    def __init__(self, joint: Recorded) -> None:
        tie = joint.signature.joint
        if tie is None:
            raise InvalidArgumentError(
                "the signature doesn't say what is a gradient",
                code="partition.joint",
                hints=("make the graph with joint_graph",),
            )
        self.joint, self.signature, self.tie = joint, joint.signature, tie
        self.graph = joint.graph_module.graph
        placeholders = list(self.graph.find_nodes(op="placeholder"))
        n_primals = len(placeholders) - len(tie.tangents)
        self.primals, self.tangents = placeholders[:n_primals], placeholders[n_primals:]
        (output,) = self.graph.find_nodes(op="output")
        self.results: list[fx.Node] = list(output.args[0])
        self.backward = self._dependents(self.tangents)
        self.tangent_results = tuple(self._tangent_result(tangent) for tangent in tie.tangents)
        self._check()

    @cached_property
    def forward_results(self) -> tuple[int, ...]:
        """The results that the program's own outputs and writes speak of, by number."""
        named = [p for spec in self.signature.outputs[: self.tie.n_outputs] for p in _result(spec)]
        return tuple(sorted({*named, *(write.result for write in self.signature.writes)}))

    @cached_property
    def gradient_results(self) -> tuple[int, ...]:
        """The results that gradients speak of, by number."""
        return tuple(sorted({p for spec in self.signature.outputs[self.tie.n_outputs :] for p in _result(spec)}))

    @cached_property
    def kept_calls(self) -> list[fx.Node]:
        """Calls of the forward graph that do more than compute: checks, random numbers."""
        return [node for node in self.graph.nodes if node not in self.backward and _must_stay(node)]

    @cached_property
    def backward_kept_calls(self) -> list[fx.Node]:
        """Calls of the backward graph that do more than compute."""
        return [node for node in self.graph.nodes if node in self.backward and _must_stay(node)]

    @cached_property
    def apart(self) -> set[fx.Node]:
        """Calls on the CPU beside another device, and copies between the two: they don't fuse with anything."""
        host = aten_dialect.host_nodes(self.joint.graph_module)
        return self._dependents(self.primals) & host if host else set()

    @cached_property
    def copied(self) -> set[fx.Node]:
        """Values that are copied when they're saved."""
        written = {write.input for write in self.signature.writes}
        nodes: set[fx.Node] = set()
        for position, node in enumerate(self.primals):
            role = self.signature.inputs[position].role
            if not isinstance(meta.value(node), torch.Tensor):
                continue
            if position in written or not (meta.is_kept(node) or role is Role.PARAMETER):
                nodes.add(node)
        shown = {}
        for position in self.forward_results:
            if any(position in _result(spec) for spec in self.signature.outputs[: self.tie.n_outputs]):
                shown[_memory(self.results[position])] = self.results[position]
        for node in self.graph.nodes:
            result = shown.get(_memory(node))
            if result is not None and node.op == "call_function" and (node is not result or not meta.is_kept(node)):
                nodes.add(node)
        return nodes

    def problem(self) -> Problem:
        """Return what policies see."""
        needed = self._needed()
        return Problem(
            tuple(
                self._value(node, node in needed)
                for node in self.graph.nodes
                if node.op != "output" and node not in self.backward
            )
        )

    def _needed(self) -> set[fx.Node]:
        """Return the forward nodes that the backward pass reads directly."""
        gradients = [self.results[position] for position in self.gradient_results]
        for spec in self.signature.outputs[self.tie.n_outputs :]:
            position = getattr(spec, "input", None)
            if position is not None and position < len(self.primals):
                gradients.append(self.primals[position])
        live: set[fx.Node] = set()
        pending = [*gradients, *self.backward_kept_calls]
        needed: set[fx.Node] = set()
        while pending:
            node = pending.pop()
            if node not in self.backward:
                needed.add(node)
            elif node not in live:
                live.add(node)
                pending += node.all_input_nodes
        return needed

    def _value(self, node: fx.Node, needed: bool) -> Value:
        value = meta.value(node)
        operands = tuple(operand.name for operand in node.all_input_nodes)
        if node.op == "get_attr":  # both graphs hold it
            return Value(node.name, 0, (), Recompute.CHEAP, saveable=False, needed=needed)
        n_bytes = _n_bytes(value)
        if node.op == "placeholder":
            free = self.signature.inputs[self.primals.index(node)].role is Role.PARAMETER and node not in self.copied
            return Value(node.name, 0 if free else n_bytes, (), Recompute.NEVER, needed=needed)
        saveable = not isinstance(value, (list, tuple)) and value is not None and _memory(node) is node
        is_forward, recompute = meta.phase(node) == "forward", _recompute(node)
        if recompute is Recompute.CHEAP and saveable and node in self.apart:
            recompute = Recompute.COSTLY
        if _is_inside_checkpoint(node) and recompute is not Recompute.NEVER:
            recompute, saveable = Recompute.CHEAP, False  # the user says so
        return Value(node.name, n_bytes, operands, recompute, saveable, needed, _flops(node), is_forward)

    def _dependents(self, nodes: list[fx.Node]) -> set[fx.Node]:
        dependents = set(nodes)
        for node in self.graph.nodes:
            if node.op != "output" and any(operand in dependents for operand in node.all_input_nodes):
                dependents.add(node)
        return dependents

    def _tangent_result(self, tangent: Any) -> int:
        """Return the number of the result whose gradient a tangent is."""
        if tangent.of_write:
            results = [write.result for write in self.signature.writes if write.input == tangent.position]
        else:
            results = list(_result(self.signature.outputs[tangent.position]))
        if not results:
            raise InvalidArgumentError("a tangent belongs to no result of the graph", code="partition.joint")
        return results[0]

    def _check(self) -> None:
        for node in self.graph.nodes:
            late = node in self.backward or meta.phase(node) == "backward"
            if late and node.op == "call_function" and aten_dialect.node_effects(node).random:
                raise UnsupportedError(
                    f"{node.target} draws random numbers in the backward pass",
                    code="training.random_backward",
                    where=meta.origins(node),
                )
        for position in self.forward_results:
            if self.results[position] in self.backward:
                raise UnsupportedError(
                    "an output or a written input depends on the gradient of an output", code="training.late_result"
                )
        for result, tangent in zip(self.tangent_results, self.tangents, strict=True):
            have, want = meta.value(self.results[result]), meta.value(tangent)
            if have.shape != want.shape or have.dtype != want.dtype:
                raise UnsupportedError(
                    f"an output has the shape {tuple(have.shape)}, its gradient {tuple(want.shape)}",
                    code="training.alias",
                )


def _result(spec: OutputSpec) -> tuple[int, ...]:
    match spec:
        case Fresh(result=result):
            return (result,)
        case AliasOfOutput(base=base):
            return (base,)
    return ()


def _must_stay(node: fx.Node) -> bool:
    return node.op == "call_function" and not aten_dialect.node_effects(node).removable


def _is_inside_checkpoint(node: fx.Node) -> bool:
    """Tell whether a value belongs to a checkpointed region and only that region and the backward pass read it."""
    mark = meta.region(node)
    if mark is None or mark[0] != "checkpoint":
        return False
    return all(meta.phase(user) == "backward" or meta.region(user) == mark for user in node.users)


def _memory(node: fx.Node) -> fx.Node:
    """Return the node whose memory `node` shows: itself, unless it's a view; an item of several results is itself."""
    while node.op == "call_function" and node.target is not operator.getitem:
        viewed = aten_dialect.viewed_nodes(node)
        if not viewed:
            break
        node = viewed[0]
    if node.target is operator.getitem and isinstance(node.args[0], fx.Node):
        source = node.args[0]
        if source.op == "call_function" and aten_dialect.viewed_nodes(source):
            return _memory(aten_dialect.viewed_nodes(source)[0])
    return node


def _recompute(node: fx.Node) -> Recompute:
    if node.target is operator.getitem and isinstance(node.args[0], fx.Node):
        return _recompute(node.args[0])
    effects = aten_dialect.node_effects(node)
    if not effects.repeatable:
        return Recompute.NEVER
    target = node.target
    if not isinstance(target, OpOverload) or effects.views or target in _ONE_PASS:
        return Recompute.CHEAP
    return Recompute.CHEAP if torch.Tag.pointwise in target.tags else Recompute.COSTLY


_UNKNOWN = 128  # a size that only the running program knows: neither tiny nor large


def _n_bytes(value: Any) -> int:
    if not isinstance(value, torch.Tensor):
        return 8 if isinstance(value, (int, torch.SymInt, float, torch.SymFloat, bool, torch.SymBool)) else 0
    return math.prod(map(_hint, value.shape)) * value.element_size()


def _hint(size: Any) -> int:
    return size if isinstance(size, int) else int(size.node.hint) if size.node.has_hint() else _UNKNOWN


def _flops(node: fx.Node) -> int:
    """Return a rough number of operations: for products from the sizes, else one an element."""
    value = meta.value(node)
    n_elements = math.prod(map(_hint, value.shape)) if isinstance(value, torch.Tensor) else 1
    operands = [meta.value(n) for n in node.all_input_nodes if isinstance(meta.value(n), torch.Tensor)]
    if any(part in str(node.target) for part in _PRODUCTS) and operands:
        return 2 * n_elements * max(math.prod(map(_hint, x.shape[1:])) for x in operands)
    return n_elements + sum(math.prod(map(_hint, x.shape)) for x in operands)
