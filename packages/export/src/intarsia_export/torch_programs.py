"""An exported program of torch's -> an artefact. It is read by its attributes; nothing of torch.export is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
import torch.fx as fx
import torch.utils._pytree as pytree

from intarsia_export.calls import Parts, path_text
from intarsia_export.contents import Artefact, Parameter
from intarsia_export.dims import Dim, Places, cases_of
from intarsia_export.exporting import Backend, finished_variant, made_on, said_of, sizes_of, with_sizes
from intarsia_export.trees import Node, tree_of
from intarsia_export.weights import Weights
from intarsia_guards.frame import Frame, fetch
from intarsia_ir import meta
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.guards import ConstantGuard, TensorGuard
from intarsia_ir.records import ArgumentSource, GuardRecord, Role, Source, TensorFacts
from intarsia_ir.source_text import parse_source
from intarsia_runtime.warm import Finished
from intarsia_shapes import ShapeEnv, fake_mode, fakeify, marks_of

__all__ = ["export_program", "is_program"]


def is_program(value: Any) -> bool:
    """Tell whether a value has what an exported program has."""
    return all(hasattr(value, name) for name in ("graph_signature", "graph_module", "range_constraints", "call_spec"))


def export_program(program: Any, args: Any, kwargs: Any, dynamic_shapes: Any, backend: Backend) -> Artefact:
    """Return the artefact of an exported program, for the sizes that it was exported for.

    Args:
        program: Not changed.
        args: Nothing: it has an example, and says which sizes vary. The same goes for the two after it.
        kwargs: Nothing.
        dynamic_shapes: Nothing.
        backend: See there.

    Raises:
        UnsupportedError: It holds what can't be compiled.
        InvalidArgumentError: `export.program`: it has no example of its inputs, or others are given.
    """
    if args or kwargs or dynamic_shapes:
        raise InvalidArgumentError("an exported program has arguments and sizes of its own", code="export.program")
    arguments, parameters = _arguments(program)
    sources = [source for source, _ in _leaves(arguments)]
    places = _places(program, arguments)
    weights, variants = Weights(), []
    with torch.inference_mode(False), torch.no_grad():
        for case in cases_of(places):
            with said_of(case):
                examples = with_sizes(arguments, places, case)
                mode = fake_mode(ShapeEnv())
                values = [_faked(mode, source, fetch(source, Frame(examples))) for source in sources]
                recorded = backend.record(_with_fakes(program, mode), values)
                finished = backend.finish(recorded, values)
                parts = _parts(finished, program, sources, examples, backend.lifted(program), weights)
                variants.append(finished_variant(finished, parts, backend.cache, examples))
    signatures = [v.finished.program.forward.contract.signature for v in variants]
    weights.check(signatures, [v.inputs for v in variants])
    provenance = made_on(variants, backend.version)
    return Artefact(type(program).__name__, parameters, tuple(variants), weights.named, provenance, sizes_of(places))


def _arguments(program: Any) -> tuple[dict[str, Any], tuple[Parameter, ...]]:
    """Return the example of a program by names of its parameters, and these."""
    example = getattr(program, "example_inputs", None)
    if not isinstance(example, tuple) or len(example) != 2:
        raise InvalidArgumentError(
            "the exported program has no example of its inputs", code="export.program", hints=("export it again",)
        )
    args, kwargs = example
    argument_names = getattr(getattr(program.module_call_graph[0], "signature", None), "forward_arg_names", None) or ()
    names = [*argument_names[: len(args)], *[f"arg{n}" for n in range(len(argument_names), len(args))]]
    parameters = [Parameter(name, "POSITIONAL_OR_KEYWORD") for name in names]
    parameters += [Parameter(name, "KEYWORD_ONLY") for name in kwargs]
    return {**dict(zip(names, args, strict=True)), **kwargs}, tuple(parameters)


def _leaves(arguments: Mapping[str, Any]) -> list[tuple[Source, Any]]:
    return [
        (parse_source(name + path_text(path)), leaf)
        for name, value in arguments.items()
        for path, leaf in pytree.tree_flatten_with_path(value)[0]
    ]


def _users(program: Any) -> list[fx.Node]:
    """Return the placeholders of a program that are the user's inputs, in order."""
    nodes = program.graph_module.graph.find_nodes(op="placeholder")
    specs = program.graph_signature.input_specs
    return [node for node, spec in zip(nodes, specs, strict=True) if spec.kind.name == "USER_INPUT"]


def _places(program: Any, arguments: Mapping[str, Any]) -> Places:
    """Return which sizes vary: those that are symbols in the program; equal symbols are one dimension."""
    places: dict[int, tuple[str, torch.Tensor, Mapping[int, Dim]]] = {}
    for node, (source, leaf) in zip(_users(program), _leaves(arguments), strict=True):
        value = meta.value(node) if meta.has_value(node) else None
        if not isinstance(leaf, torch.Tensor) or not isinstance(value, torch.Tensor):
            continue
        sizes: Any = value.shape
        symbolic: dict[int, Any] = {d: n.node.expr for d, n in enumerate(sizes) if isinstance(n, torch.SymInt)}
        if symbolic:
            places[id(leaf)] = (str(source), leaf, {d: _dim(program, expr) for d, expr in symbolic.items()})
    return places


def _dim(program: Any, expr: Any) -> Dim:
    bounds = program.range_constraints.get(expr)
    if bounds is None:  # computed from others: the relation is one that its sizes have to keep
        return Dim(str(expr), min=2)
    low, high = bounds.lower, bounds.upper
    return Dim(str(expr), max(int(low), 1), int(high) if high.is_Integer and high < 2**62 else None)


def _faked(mode: Any, source: Source, value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    marks = marks_of(value)
    return fakeify(mode, value, str(source), tuple(marks), ranges={d: (m.low, m.high) for d, m in marks.items()})


def _with_fakes(program: Any, mode: Any) -> Any:
    """Return what is read of a program, with fake tensors for its own and nothing noted on its placeholders."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in program.graph_module.graph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
        if node.op == "placeholder":
            copies[node].meta = {}  # what was noted would be taken for its value
    fakes = {
        name: {key: _fake_own(mode, value) for key, value in getattr(program, name).items()}
        for name in ("state_dict", "constants")
    }
    return SimpleNamespace(
        graph_module=fx.GraphModule(program.graph_module, graph),
        graph_signature=program.graph_signature,
        call_spec=program.call_spec,
        **fakes,
    )


def _fake_own(mode: Any, value: Any) -> Any:
    return mode.from_tensor(value, static_shapes=True) if isinstance(value, torch.Tensor) else value


def _parts(
    finished: Finished,
    program: Any,
    sources: Sequence[Source],
    examples: Mapping[str, Any],
    lifted: Sequence[torch.Tensor],
    weights: Weights,
) -> Parts:
    signature = finished.program.forward.contract.signature
    users, tensors = iter(sources), iter(lifted)
    inputs: list[str | Source] = []
    renamed: dict[Source, Source] = {}
    for spec in signature.inputs:
        if spec.role is Role.USER:
            renamed[ArgumentSource(spec.name)] = place = next(users)
            inputs.append(place)
        else:
            names = str(spec.source).removeprefix("self.")
            inputs.append(weights.name(next(tensors), names))
    frame = Frame(examples)
    records = tuple(_relied_on(source, fetch(source, frame)) for source in sources)
    leaves = [{"result": n} for n in range(len(signature.outputs))]
    marked = [SimpleNamespace(leaf=leaf) for leaf in leaves]
    nested = pytree.tree_unflatten(marked, program.call_spec.out_spec)
    result: Node = tree_of(nested, lambda value, path: value.leaf)
    return Parts(None, (), signature, tuple(inputs), result, frozenset(examples), 0, records, renamed)


def _relied_on(source: Source, value: Any) -> GuardRecord:
    """Return what an exported program asks of an input."""
    if not isinstance(value, torch.Tensor):
        return ConstantGuard(source, value, reason="an input of the exported program")
    marks = marks_of(value)
    shape = tuple(None if d in marks else n for d, n in enumerate(value.shape))
    return TensorGuard(
        source,
        TensorFacts(
            "torch.Tensor" if type(value) is torch.Tensor else f"{type(value).__module__}.{type(value).__qualname__}",
            value.dtype,
            (value.device.type, value.device.index),
            shape,
            _strides(value, marks),
            False,
        ),
        reason="an input of the exported program",
    )


def _strides(value: torch.Tensor, marks: Mapping[int, Any]) -> tuple[int | None, ...]:
    """Return strides; those that a size that varies may change are open, since facts about symbols speak of them."""
    ordered = sorted(range(value.dim()), key=lambda d: (value.stride(d), -d))
    strides: list[int | None] = [None] * value.dim()
    varies = False
    for d in ordered:
        strides[d] = None if varies else value.stride(d)
        varies = varies or d in marks
    return tuple(strides)
