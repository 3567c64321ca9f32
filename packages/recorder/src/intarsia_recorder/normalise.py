"""`normalise`: graphs that other front ends made, as FX(aten, effects) with all that our passes ask of one.

What is taken, and what is made of it:
  GraphModule of ATen or torch calls     recorded again, node by node; modules are inlined
  its parameters and buffers             inputs behind the program's own, with role and source below `self`
  fake values of another environment     fake tensors of ours: the same sizes, symbols as symbols, with facts
  an exported program                    roles from its signature; outputs that are written back become writes again;
                                         gradients that it computes are outputs like others
  a joint graph of AOTAutograd           roles, tangents and gradients from what it notes (`joints`); may be partitioned
  calls of torch's higher-order operators
                                         calls with subgraphs of ours, or what they stand for (`torchs_calls`)
Where the values of inputs come from: `inputs`, or else what the front end noted on the placeholders.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from intarsia_ir import meta
from intarsia_ir.errors import InvalidArgumentError, UnsupportedError
from intarsia_ir.records import (
    ArgumentSource,
    AttributeSource,
    Constant,
    Fresh,
    InputSpec,
    Joint,
    OutputSpec,
    Role,
    Signature,
)
from intarsia_ir.torch import normalise as inlined
from intarsia_ir.values import Recorded
from intarsia_recorder.joints import joint_program
from intarsia_recorder.record import record
from intarsia_recorder.recorder import Decompositions
from intarsia_shapes import adopted, fake_mode

__all__ = ["lifted_values", "normalise"]

_ROLES = {"PARAMETER": Role.PARAMETER, "BUFFER": Role.BUFFER, "CONSTANT_TENSOR": Role.BUFFER, "USER_INPUT": Role.USER}
_RESULTS = ("USER_OUTPUT", "LOSS_OUTPUT", "GRADIENT_TO_PARAMETER", "GRADIENT_TO_USER_INPUT")
_MUTATIONS = ("BUFFER_MUTATION", "PARAMETER_MUTATION", "USER_INPUT_MUTATION")


class _Program(NamedTuple):
    """A graph without modules, flat, and what is known of it.

    Args:
        graph_module: The graph.
        inputs: One for each placeholder.
        outputs: What its flat outputs are, by its results.
        output_tree: How they nest.
        lifted: Values of the inputs that the caller doesn't give.
        joint: Of a joint graph, which tangent and which gradient is whose.
    """

    graph_module: fx.GraphModule
    inputs: tuple[InputSpec, ...]
    outputs: tuple[OutputSpec, ...]
    output_tree: Any
    lifted: tuple[Any, ...] = ()
    joint: Joint | None = None


def normalise(
    program: Any, inputs: Sequence[Any] | None = None, *, decompositions: Decompositions | None = None
) -> Recorded:
    """Return FX(aten, effects) of a graph that another front end made; gradients are in it where it computes them.

    Args:
        program: A GraphModule, as make_fx, symbolic tracing, torch.compile and AOTAutograd give to a function of the
            user's, or an exported program. Not changed.
        inputs: Examples for its inputs, nested as there, real or fake; without those that it has itself. None: what is
            noted on its placeholders.
        decompositions: ATen overload -> Python function to record in its place.

    Returns:
        The graph with values and origins on every node; its signature with roles and sources, and with `joint` where
        the graph has tangents; the size facts.
        Parameters and buffers are inputs behind the others, as `lifted_values` gives them; those of an exported program
        are where it has them.

    Raises:
        InvalidArgumentError: `recorder.program`: it is neither; `recorder.no_value`: an input has no example.
        UnsupportedError: The graph holds what can't be recorded, such as a call that is given functions, of an operator
            that isn't known: the message names it.

    Example:
        >>> gm = fx.symbolic_trace(torch.nn.Linear(2, 3))
        >>> done = normalise(gm, (torch.zeros(4, 2),))
        >>> [(spec.name, spec.role.name) for spec in done.signature.inputs]
        [('input_1', 'USER'), ('weight', 'PARAMETER'), ('bias', 'PARAMETER')]
    """
    flat = _exported(program) if hasattr(program, "graph_signature") else _inlined(program)
    gm = flat.graph_module
    values = _values(gm, flat, inputs)
    adopted_values, _ = adopted(gm, values)  # with symbols of a front end's, if it noted any, in place of real tensors
    with torch.no_grad():
        done = record(gm, _in_one_mode(adopted_values), decompositions=decompositions, signature=Signature(flat.inputs))
    outputs = tuple(done.signature.outputs[o.result] if isinstance(o, Fresh) else o for o in flat.outputs)
    grads = [spec.requires_grad for spec in flat.inputs]
    specs = tuple(map(_with_grad, done.signature.inputs, grads))
    signature = dataclasses.replace(
        done.signature, inputs=specs, outputs=outputs, output_tree=flat.output_tree, joint=flat.joint
    )
    return dataclasses.replace(done, signature=signature)


def lifted_values(program: Any) -> tuple[torch.Tensor, ...]:
    """Return the parameters and buffers that `normalise(program)` has as inputs, in their order.

    Example:
        >>> linear = torch.nn.Linear(2, 3)
        >>> [value is linear.weight for value in lifted_values(fx.symbolic_trace(linear))]
        [True, False]
    """
    return (_exported(program) if hasattr(program, "graph_signature") else _inlined(program)).lifted


def _inlined(program: Any) -> _Program:
    """Return a GraphModule with its modules inlined and their tensors lifted."""
    if not isinstance(program, fx.GraphModule):
        raise InvalidArgumentError(
            f"a {type(program).__name__} is no graph: a GraphModule or an exported program is needed",
            code="recorder.program",
            hints=("record(program, inputs) records a function",),
        )
    done = inlined(program)
    signature = done.signature
    inputs = tuple(
        s if s.source is not None else dataclasses.replace(s, source=ArgumentSource(s.name)) for s in signature.inputs
    )
    (returned,) = program.graph.find_nodes(op="output")
    both = joint_program(done.graph_module, inputs, signature.outputs, meta.front_end_description(returned))
    if both is not None:
        return _Program(both.graph_module, both.inputs, both.outputs, None, (), both.joint)
    return _Program(done.graph_module, inputs, signature.outputs, signature.output_tree, done.lifted)


def _exported(program: Any) -> _Program:
    """Return the graph of an exported program, which writes what the program gives to be written."""
    given, signature = program.graph_module, program.graph_signature
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in given.graph.nodes:
        if node.op != "output":
            copies[node] = graph.node_copy(node, copies.__getitem__)
    by_name = {node.name: copy for node, copy in copies.items()}
    inputs, lifted, places = [], [], {}
    for node, spec in zip(given.graph.find_nodes(op="placeholder"), signature.input_specs, strict=True):
        if spec.kind.name not in _ROLES:
            raise _unknown(f"the input {node.name} is a {spec.kind.name.lower()}")
        inputs.append(InputSpec(copies[node].name, _ROLES[spec.kind.name], _source(spec.target, node.name)))
        places[spec.target or node.name] = copies[node]
        if spec.target is not None:
            tensor = (
                program.state_dict[spec.target] if spec.target in program.state_dict else program.constants[spec.target]
            )
            inputs[-1] = dataclasses.replace(inputs[-1], requires_grad=tensor.requires_grad)
            lifted.append(tensor)
    results: list[fx.Node] = []
    outputs: list[OutputSpec] = []
    (returned,) = given.graph.find_nodes(op="output")
    for value, spec in zip(returned.args[0], signature.output_specs, strict=True):
        result = by_name[value.name] if isinstance(value, fx.Node) else value
        if spec.kind.name in _MUTATIONS:
            written = graph.call_function(torch.ops.aten.copy_.default, (places[spec.target], result))
            meta.set_origins(written, meta.origins(result))
        elif spec.kind.name not in _RESULTS:
            raise _unknown(f"the output {value} is a {spec.kind.name.lower()}")
        elif not isinstance(result, fx.Node):
            outputs.append(Constant(result))
        else:
            results += [result] if result not in results else []
            outputs.append(Fresh(results.index(result)))
    graph.output(tuple(results))
    tree = getattr(program.call_spec, "out_spec", None)
    return _Program(fx.GraphModule(given, graph), tuple(inputs), tuple(outputs), tree, tuple(lifted))


def _unknown(what: str) -> UnsupportedError:
    return UnsupportedError(f"{what}, which no program of ours has", code="recorder.exported")


def _source(path: str | None, name: str) -> Any:
    """Return where an input is found: an argument, or a tensor below `self`."""
    if path is None:
        return ArgumentSource(name)
    source: Any = ArgumentSource("self")
    for part in path.split("."):
        source = AttributeSource(source, part)
    return source


def _values(gm: fx.GraphModule, flat: _Program, inputs: Sequence[Any] | None) -> list[Any]:
    """Return a value for each placeholder: what is given, what the program has, what the front end noted."""
    leaves = iter(pytree.tree_leaves(tuple(inputs))) if inputs is not None else None
    nodes = gm.graph.find_nodes(op="placeholder")
    has = iter(flat.lifted)
    values, missing = [], []
    for node, spec in zip(nodes, flat.inputs, strict=True):
        if spec.role is not Role.USER and flat.joint is None:  # the inputs of a joint graph are all its caller's
            values.append(_noted(node, next(has)))
            continue
        value = _noted(node, _MISSING) if leaves is None else next(leaves, _MISSING)
        missing += [node.name] if value is _MISSING else []
        values.append(value)
    if leaves is not None and (extra := len(list(leaves))):
        raise InvalidArgumentError(
            f"{extra} more inputs are given than the graph has of its caller", code="recorder.inputs"
        )
    if missing:
        raise InvalidArgumentError(
            f"nothing is known of the values of {', '.join(missing)}: the graph was made without examples",
            code="recorder.no_value",
            hints=(f"give `inputs`, one for each of {', '.join(s.name for s in flat.inputs if s.role is Role.USER)}",),
        )
    return values


_MISSING = object()


def _noted(node: fx.Node, default: Any) -> Any:
    """Return what a front end noted of a placeholder: a fake tensor or number."""
    value = meta.value(node) if meta.has_value(node) else meta.front_end_value(node, default)
    return default if value is None and default is _MISSING else value


def _in_one_mode(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return fake tensors of static sizes that come from elsewhere in a mode of ours; real ones stay."""
    fakes = [v for v in values if isinstance(v, FakeTensor)]
    sizes = [n for v in fakes for n in (*v.shape, *v.stride())]
    if any(isinstance(n, torch.SymInt) for n in sizes) or not fakes:
        return tuple(values)
    mode = fake_mode(None)

    def ours(value: Any) -> Any:
        if not isinstance(value, FakeTensor):
            return value
        with mode:
            fake = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
        return fake.requires_grad_(value.requires_grad)

    return tuple(map(ours, values))


def _with_grad(spec: InputSpec, requires_grad: bool) -> InputSpec:
    return dataclasses.replace(spec, requires_grad=spec.requires_grad or requires_grad)
