"""`plain_module`: a program of any level as a GraphModule that anyone can call, export or compile.

    placeholder of a parameter or buffer   ->  get_attr of a tensor that the module holds, under its own name
    writes of the signature                ->  copy_ calls behind the graph
    outputs of the signature               ->  results, views of inputs and results, the inputs themselves, constants
    output tree                            ->  the nesting that the program returns

Nothing but torch is needed to run it, down to FX(aten), unless results are views whose sizes are computed from others
(`size_value`); the nodes of the levels below call their nests, which torch operators compute. Writes stand behind the
graph, so that autograd refuses to differentiate one that writes what its gradients need: differentiate such a program
at FX(torch), or as a joint graph.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx
from torch.utils import _pytree as pytree

from intarsia_ir._fx import attribute, placeholders
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import (
    AliasOfInput,
    AliasOfOutput,
    ArgumentSource,
    AttributeSource,
    Constant,
    Fresh,
    InputItself,
    InputNumber,
    InputSpec,
    OutputSpec,
    Role,
    Signature,
    SizeExpression,
    Source,
    ViewStep,
)
from intarsia_ir.size_expressions import size_value

__all__ = ["plain_module"]

_HELD = (Role.PARAMETER, Role.BUFFER)
_PLAIN = (type(None), bool, int, float, complex, str, torch.dtype, torch.device)


def plain_module(graph_module: fx.GraphModule, signature: Signature, tensors: Sequence[torch.Tensor]) -> fx.GraphModule:
    """Return a program as a GraphModule that takes the caller's inputs and gives what the program gives.

    Args:
        graph_module: The graph, of any level. Not changed.
        signature: What its inputs and results mean, as at FX(aten).
        tensors: The parameters and buffers among its inputs, in their order; the module holds them, and writes them
            where the program does. A parameter that isn't a `torch.nn.Parameter` is a buffer there.

    Raises:
        InvalidArgumentError: `ir.plain`: another number of tensors; a joint graph, whose tangents no caller has; a size
            among the results that the graph only states, as FX(loops) and FX(kernels) do.

    Example:
        >>> from intarsia_ir.torch import normalise
        >>> done = normalise(fx.symbolic_trace(torch.nn.Linear(2, 3)))
        >>> plain = plain_module(done.graph_module, done.signature, done.lifted)
        >>> list(plain.state_dict()), plain(torch.zeros(4, 2)).shape
        (['weight', 'bias'], torch.Size([4, 3]))
    """
    held = {position: spec for position, spec in enumerate(signature.inputs) if spec.role in _HELD}
    if signature.joint is not None:
        raise InvalidArgumentError(
            "a joint graph takes tangents, which no caller has",
            code="ir.plain",
            hints=("partition it: each half is a graph with inputs and results",),
        )
    if len(held) != len(tensors):
        raise InvalidArgumentError(
            f"{len(tensors)} tensors are given for {len(held)} parameters and buffers of the graph",
            code="ir.plain",
            hints=("`intarsia_recorder.lifted_values(program)` gives those of a program",),
        )
    attributes = {str(node.target): node for node in graph_module.graph.find_nodes(op="get_attr")}
    names = _names(held, set(attributes))
    graph = fx.Graph()
    values: dict[fx.Node, Any] = {}
    nodes = placeholders(graph_module.graph)
    # a GraphModule has its placeholders in front
    for position, node in sorted(enumerate(nodes), key=lambda item: item[0] in names):
        values[node] = graph.get_attr(names[position]) if position in names else graph.node_copy(node)
    inputs = [values[node] for node in nodes]
    results = graph.graph_copy(graph_module.graph, values)
    results = tuple(results) if isinstance(results, list | tuple) else (results,)
    for result in results:
        if not isinstance(result, (fx.Node, *_PLAIN)):
            raise InvalidArgumentError(
                f"a result of the program is the size {result}, which this level states but doesn't compute",
                code="ir.plain",
                hints=("take the program from FX(aten), which has a node for it",),
            )
    outputs = _Epilogue(graph, signature, inputs, results).outputs()
    tree = signature.output_tree
    graph.output(tuple(outputs) if tree is None else pytree.tree_unflatten(outputs, tree))
    root = {name: attribute(graph_module, name) for name in attributes}
    # not a lazy one: exporters and other compilers read the parameters of its `forward`
    return fx.GraphModule(root | dict(zip(names.values(), tensors, strict=True)), graph)


def _names(held: Mapping[int, InputSpec], taken: set[str]) -> dict[int, str]:
    """Return what the held inputs are called in the module: paths of which none leads through another."""
    names: dict[int, str] = {}
    for position, spec in held.items():
        name = _path(spec.source) or spec.name
        while any(name == other or _within(name, other) or _within(other, name) for other in taken):
            name = name.replace(".", "_") + "_"
        taken.add(name)
        names[position] = name
    return names


def _within(name: str, other: str) -> bool:
    return name.startswith(f"{other}.")


def _path(source: Source | None) -> str:
    """Return the names below the module that a source goes through; empty where it doesn't start at one."""
    parts: list[str] = []
    while isinstance(source, AttributeSource):
        parts.append(source.name)
        source = source.base
    is_module = isinstance(source, ArgumentSource) and source.name == "self"
    return ".".join(reversed(parts)) if is_module else ""


@dataclass(frozen=True, slots=True)
class _Epilogue:
    """Builds what the signature says of the results of a graph."""

    graph: fx.Graph
    signature: Signature
    inputs: Sequence[fx.Node]
    results: Sequence[Any]

    def outputs(self) -> list[Any]:
        """Write the inputs that are written, and return the outputs."""
        symbols = {name: self._read(where) for name, where in self.signature.symbols.items()}
        for write in self.signature.writes:
            self._call("aten.copy_.default", self.inputs[write.input], self.results[write.result])
        return [self._output(spec, symbols) for spec in self.signature.outputs]

    def _output(self, spec: OutputSpec, symbols: Mapping[str, Any]) -> Any:
        match spec:
            case Fresh(result=result):
                return self.results[result]
            case AliasOfInput(input=position, layout=layout, steps=steps):
                return self._view(self.inputs[position], layout, steps, symbols)
            case AliasOfOutput(base=base, layout=layout, steps=steps):
                return self._view(self.results[base], layout, steps, symbols)
            case InputItself(input=position):
                return self.inputs[position]
            case Constant(value=value):
                return value
        raise AssertionError(f"unknown kind of output {spec!r}")

    def _view(self, base: Any, layout: Any, steps: Sequence[ViewStep], symbols: Mapping[str, Any]) -> Any:
        if not steps:
            shape, strides, offset = self._filled(layout, symbols)
            start = self._call("aten.sym_storage_offset.default", base)
            offset = self.graph.call_function(operator.add, (start, offset))
            return self._call("aten.as_strided.default", base, shape, strides, offset)
        for step in steps:
            base = self._call(step.op, base, *self._filled(step.args, symbols))
            base = base if step.item is None else self.graph.call_function(operator.getitem, (base, step.item))
        return base

    def _filled(self, value: Any, symbols: Mapping[str, Any]) -> Any:
        if isinstance(value, SizeExpression):
            names = {name: node for name, node in symbols.items() if name in value.text}
            return self.graph.call_function(size_value, (value.text,), names)
        return type(value)(self._filled(v, symbols) for v in value) if type(value) in (tuple, list) else value

    def _read(self, where: InputNumber) -> Any:
        """Return the node of a number that the inputs have."""
        given = self.inputs[where.input]
        if where.kind == "itself":
            return given
        if where.kind == "storage_offset":
            return self._call("aten.sym_storage_offset.default", given)
        return self._call(f"aten.sym_{where.kind}.int", given, where.dim)

    def _call(self, name: str, *args: Any) -> fx.Node:
        return self.graph.call_function(attribute(torch.ops, name), args)
