"""`record`: run a program on fake tensors and keep the ATen ops that ran.

A program is FX(torch), run node by node so that each ATen op gets the origins of its torch-level node, or any
Python callable, whose ops get their origins from the Python stack. Grad mode and autocast regions are executed,
under the caller's grad mode and autocast state, and leave nothing behind but the casts that they caused.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
import torch.fx as fx
import torch.utils._pytree as pytree
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
)
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from intarsia_ir import meta
from intarsia_ir.aten.fake import quiet_fake_mode
from intarsia_ir.dialects import dialect_of
from intarsia_ir.errors import InvalidArgumentError, UnsupportedError
from intarsia_ir.higher_order import HigherOrderOp
from intarsia_ir.records import (
    Constant,
    Fresh,
    InputItself,
    InputSpec,
    Origin,
    OutputSpec,
    Role,
    Signature,
    SizeFacts,
)
from intarsia_ir.torch import SETTINGS, Transform
from intarsia_ir.values import Recorded
from intarsia_recorder._fx import attribute, graph_module
from intarsia_recorder.composites import composites_in_python
from intarsia_recorder.higher_order import call_higher_order
from intarsia_recorder.metacache import MetaCache
from intarsia_recorder.recorded_composites import RecordedComposites
from intarsia_recorder.recorder import Decompositions, Recorder
from intarsia_recorder.stacks import raising_frames
from intarsia_recorder.subgraphs import no_saved_tensors_hooks
from intarsia_recorder.torchs_calls import call_of_torchs
from intarsia_shapes import ShapeEnv, fake_mode, freeze, plain_size

__all__ = ["record", "recording"]

Around = Callable[
    [Recorder, Sequence[Any]], contextlib.AbstractContextManager[Callable[[Sequence[Any]], Sequence[Any]]]
]
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_DATA_DEPENDENT = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)


def record(
    program: fx.GraphModule | Callable[..., Any],
    inputs: Sequence[Any],
    *,
    decompositions: Decompositions | None = None,
    fake_mode: FakeTensorMode | None = None,
    signature: Signature | None = None,
    cache: MetaCache | None = None,
    around: Around | None = None,
    fuel: int | None = None,
) -> Recorded:
    """Return FX(aten, effects) of `program`: its ATen ops, views, writes and random ops in program order.

    Inputs are never written, whatever the program does. Real tensors become fake tensors of the same static sizes;
    real tensors that the program closes over become buffers of the graph module. Outputs are flattened.

    Args:
        program: FX(torch), or a callable that takes `inputs` (nested containers allowed) as positional arguments.
        inputs: Real or fake tensors, and numbers; each leaf becomes a placeholder, a plain number a constant one.
        decompositions: ATen overload -> Python function to record in its place.
        fake_mode: Mode of the fake tensors among the inputs; by default theirs, or a new one with static sizes.
        signature: Names, roles and sources of the inputs, in order, if it lists any; the rest of it is ignored.
        cache: Op results of earlier recordings under `fake_mode`.
        around: Entered with the recorder and the flat fake inputs before the program runs. What it gives is called
            under the recorder with the flat outputs, and returns the outputs to give. Inputs that it adds to the
            recorder follow the others, as tangents.
        fuel: How many calls are decomposed by the table, in program order; the rest stay whole. None: all.

    Returns:
        The graph, whose results are the outputs that are neither inputs nor constants, in order; its signature; and
        the facts of the shape environment, if there is one.

    Raises:
        InvalidArgumentError: The inputs don't fit the program or the signature.
        UnsupportedError: The program asks for values that only running it can tell, or holds what a graph can't.

    Example:
        >>> done = record(lambda x: torch.relu(x).add_(1), (torch.zeros(2, 3),))
        >>> [str(node.target) for node in done.graph_module.graph.nodes if node.op == "call_function"]
        ['aten.relu.default', 'aten.add_.Tensor']
    """
    if isinstance(program, fx.GraphModule) and (dialect := dialect_of(program)) not in ("", "torch", "aten"):
        raise InvalidArgumentError(
            f"this is FX({dialect}), which was made of what is recorded here: torch or ATen calls",
            code="recorder.dialect",
        )
    leaves, tree = pytree.tree_flatten(tuple(inputs))
    mode = fake_mode or _mode_of(leaves)
    mode.epoch += 1  # inputs remember sizes that a front end made for their `nonzero`, which this graph doesn't have
    table = decompositions if fuel is None else limited(decompositions or {}, fuel)
    recorder = Recorder(mode, decompositions=table, cache=cache)
    names = _input_names(program, leaves, signature)
    fakes = [_fake(mode, leaf) for leaf in leaves]
    # one that stands for a view was written when it was made, one of a front end that ran the program before by that
    versions = [_version(fake) for fake in fakes]
    placeholders = [recorder.placeholder(fake, name) for fake, name in zip(fakes, names, strict=True)]
    entry_grad_mode = torch.is_grad_enabled()
    if isinstance(program, fx.GraphModule):
        recorder.where = _first_line(program)  # what goes on around a program is no line of its own
    with recording(recorder), (around or _nothing_around)(recorder, fakes) as proceed:
        if isinstance(program, fx.GraphModule):
            result = _run_graph(recorder, program, fakes, placeholders)
        else:
            result = program(*pytree.tree_unflatten(fakes, tree))
        exit_grad_mode = torch.is_grad_enabled()
        outputs, output_tree = pytree.tree_flatten(result)
        outputs = list(proceed(outputs))
    placeholders = list(recorder.graph.find_nodes(op="placeholder"))
    fakes += [meta.value(node) for node in placeholders[len(fakes) :]]
    versions += [0] * (len(fakes) - len(versions))
    specs, results = _outputs(recorder, fakes, outputs)
    recorder.emit_deferred_asserts()
    output = recorder.graph.output(tuple(results))
    meta.set_value(output, tuple(meta.value(node) for node in results))
    meta.set_origins(output, ())
    recorder.forget_autograd()
    listed = (signature.inputs if signature is not None else ()) or (InputSpec(""),) * len(leaves)
    listed = (*listed, *[InputSpec("", Role.TANGENT)] * (len(fakes) - len(leaves)))
    return Recorded(
        graph_module(recorder.root, recorder.graph),
        Signature(
            inputs=tuple(map(_input_spec, listed, placeholders, fakes, versions)),
            outputs=specs,
            output_tree=None if _is_flat(result) else output_tree,
            exit_grad_mode=None if exit_grad_mode == entry_grad_mode else exit_grad_mode,
        ),
        _facts(mode),
    )


def limited(table: Decompositions, fuel: int) -> Decompositions:
    """Return a table that decomposes so many calls, those inside of decompositions included, and declines the rest."""
    left = fuel

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def decompose(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            if left <= 0:
                return NotImplemented
            left -= 1
            result = function(*args, **kwargs)
            left += result is NotImplemented
            return result

        return decompose

    return {op: counted(function) for op, function in table.items()}


@contextlib.contextmanager
def _nothing_around(recorder: Recorder, inputs: Sequence[Any]) -> Iterator[Callable[[Sequence[Any]], Sequence[Any]]]:
    yield lambda outputs: outputs


@contextlib.contextmanager
def recording(recorder: Recorder) -> Iterator[Recorder]:
    """Run the body under `recorder` and its fake mode, with an empty cast cache; grad mode and settings are restored.

    Raises:
        UnsupportedError: The body asks for values that only running it can tell.
    """
    grad_mode = torch.is_grad_enabled()
    settings = [(setter, getter()) for setter, getter in SETTINGS.items()]
    located = _tell_lines(recorder)
    torch.clear_autocast_cache()  # casts of real parameters, kept by a region around us, would become constants
    try:
        with (
            quiet_fake_mode(),
            composites_in_python(recorder.fake_mode),
            RecordedComposites(recorder),
            recorder.fake_mode,
            recorder,
            torch.autograd.set_multithreading_enabled(False),  # gradients inside: autograd's threads have no modes
        ):
            yield recorder
    except _DATA_DEPENDENT as error:
        raise UnsupportedError(
            f"the program needs a value that only running it can tell: {error}",
            code="recorder.data_dependent",
            where=recorder.where or raising_frames(error),
        ) from error
    except UnsupportedFakeTensorException as error:
        raise UnsupportedError(
            f"no fake tensor stands for this one: {error.reason}",
            code="recorder.tensor_kind",
            where=recorder.where or raising_frames(error),
        ) from error
    finally:
        torch.clear_autocast_cache()  # and fake casts must not reach the program when it runs
        torch._C._set_grad_enabled(grad_mode)
        for setter, value in settings:
            if SETTINGS[setter]() != value:
                setter(value)
        if recorder.env is not None:
            recorder.env.locate = located


def _tell_lines(recorder: Recorder) -> Callable[[], Origin | None] | None:
    """Let the environment ask the recorder for the user line of a question; return whom it asked before."""
    if recorder.env is None:
        return None
    before, recorder.env.locate = recorder.env.locate, lambda: recorder.where[-1] if recorder.where else None
    return before


def _fake(mode: FakeTensorMode, value: Any) -> Any:
    """Return the fake tensor of static sizes that stands for a real tensor; anything else stays as it is."""
    if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
        return mode.from_tensor(value, static_shapes=True)
    return value


def _facts(mode: FakeTensorMode) -> SizeFacts:
    """Return what the mode's environment assumed, if it's one of ours."""
    env: object = mode.shape_env
    return freeze(env) if isinstance(env, ShapeEnv) else SizeFacts()


def _mode_of(leaves: Sequence[Any]) -> FakeTensorMode:
    """Return the mode of the fake tensors among the inputs, or a new one."""
    modes = {id(leaf.fake_mode): leaf.fake_mode for leaf in leaves if isinstance(leaf, FakeTensor)}
    if len(modes) > 1:
        raise InvalidArgumentError(
            f"the inputs are fake tensors of {len(modes)} different modes", code="recorder.modes"
        )
    if modes:
        return next(iter(modes.values()))
    sizes = [leaf.node.shape_env for leaf in leaves if isinstance(leaf, torch.SymInt)]
    # sizes alone, as `zeros(n)` has them, belong to an environment as well
    return fake_mode(next((env for env in sizes if isinstance(env, ShapeEnv)), None))


def _input_names(
    program: fx.GraphModule | Callable[..., Any], leaves: Sequence[Any], signature: Signature | None
) -> list[str]:
    """Return a name for each placeholder, after checking their number."""
    names = [f"arg{position}" for position in range(len(leaves))]
    if isinstance(program, fx.GraphModule):
        names = [node.name for node in program.graph.nodes if node.op == "placeholder"]
    if len(names) != len(leaves):
        raise InvalidArgumentError(
            f"the graph has {len(names)} placeholders, {len(leaves)} inputs are given", code="recorder.inputs"
        )
    if signature is not None and signature.inputs and len(signature.inputs) != len(leaves):
        raise InvalidArgumentError(
            f"the signature has {len(signature.inputs)} inputs, {len(leaves)} are given", code="recorder.inputs"
        )
    return names


def _input_spec(listed: InputSpec, node: fx.Node, fake: Any, version: int | None) -> InputSpec:
    """Return what a placeholder stands for; `version` is what its count of writes began with, if it has one."""
    requires_grad = isinstance(fake, torch.Tensor) and fake.requires_grad
    end = _version(fake)
    n_writes = None if end is None or version is None else end - version
    return dataclasses.replace(listed, name=node.name, requires_grad=requires_grad, n_writes=n_writes)


def _version(fake: Any) -> int | None:
    """Return how often a tensor was written, as autograd counts, never an inference tensor's; None for other values."""
    if not isinstance(fake, torch.Tensor):
        return None
    return 0 if fake.is_inference() else fake._version


def _first_line(program: fx.GraphModule) -> tuple[Origin, ...] | None:
    """Return the line that the first node with one comes from; None where none has."""
    origins = next((where for node in program.graph.nodes if (where := meta.origins(node))), ())
    return tuple([dataclasses.replace(origin, op="") for origin in origins[:1]]) or None


def _run_graph(
    recorder: Recorder, program: fx.GraphModule, fakes: Sequence[Any], placeholders: Sequence[fx.Node | None]
) -> Any:
    """Run FX(torch) node by node and return what its output node holds."""
    values: dict[fx.Node, Any] = {}
    inputs = iter(zip(fakes, placeholders, strict=True))
    phase = recorder.phase
    with contextlib.ExitStack() as regions:
        for line, node in enumerate(program.graph.nodes, 1):
            where = meta.origins(node) or (Origin("<graph>", line, "forward", node.name),)
            recorder.where = tuple([dataclasses.replace(origin, op=node.name) for origin in where])
            recorder.mark = meta.region(node)
            recorder.phase = meta.phase(node) if meta.phase(node) != "forward" else phase
            if node.op == "placeholder":
                values[node], placeholder = next(inputs)
                if placeholder is not None:
                    meta.set_origins(placeholder, recorder.where)
            elif node.op == "output":
                recorder.phase = phase
                return fx.map_arg(node.args[0], values.__getitem__)
            else:
                values[node] = _run_node(recorder, program, node, values)
                if isinstance(values[node], torch.autocast):
                    regions.push(_leave_on_error(values[node]))
    raise InvalidArgumentError("the graph has no output node", code="recorder.inputs")


def _leave_on_error(autocast: torch.autocast) -> Callable[..., None]:
    """Return an exit callback: a failing op must not leave the caller inside the program's autocast region."""

    def leave(kind: object, error: object, trace: object) -> None:
        if kind is not None and torch.is_autocast_enabled(autocast.device) != autocast.prev:
            autocast.__exit__(None, None, None)

    return leave


def _run_node(recorder: Recorder, program: fx.GraphModule, node: fx.Node, values: dict[fx.Node, Any]) -> Any:
    """Run one node of FX(torch)."""
    if node.op == "get_attr":
        value = attribute(program, str(node.target))
        return recorder.constant(value, str(node.target)) if isinstance(value, torch.Tensor) else value
    args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
    if node.op == "call_function":
        assert callable(node.target)
        if isinstance(node.target, Transform):
            return _run_transform(recorder, node.target, args)
        if isinstance(node.target, HigherOrderOp):
            op = node.target
            return _run_higher_order(recorder, op.name, op.programs, args, op.options)
        if isinstance(node.target, HigherOrderOperator):
            return call_of_torchs(recorder, _inside(recorder), node.target, args, kwargs)
        return node.target(*args, **kwargs)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    return attribute(program, str(node.target))(*args, **kwargs)


def _run_transform(recorder: Recorder, transform: Transform, operands: Sequence[Any]) -> Any:
    """Run a transformed call: the nodes of its function one by one, under the transform."""
    with no_saved_tensors_hooks():
        return transform.apply(_inside(recorder), operands)


def _run_higher_order(
    recorder: Recorder,
    name: str,
    programs: Sequence[fx.GraphModule],
    operands: Sequence[Any],
    options: Mapping[str, int] = MappingProxyType({}),
) -> Any:
    """Record a call with subgraphs: the nodes of each of its graphs one by one, into a graph of their own."""
    run = _inside(recorder)
    bodies = [lambda *inputs, program=program: run(program, inputs) for program in programs]
    return call_higher_order(recorder, name, bodies, operands, options)


def _inside(recorder: Recorder) -> Callable[[fx.GraphModule, Sequence[Any]], Any]:
    """Return what runs the graph that a node holds."""
    where, mark = recorder.where, recorder.mark

    def run(program: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        try:
            return _run_graph(recorder, program, inputs, [None] * len(inputs))
        finally:
            recorder.where, recorder.mark = where, mark

    return run


def _outputs(
    recorder: Recorder, inputs: Sequence[Any], outputs: Sequence[Any]
) -> tuple[tuple[OutputSpec, ...], list[fx.Node]]:
    """Return what each output is, and the nodes of those that the graph has to return."""
    input_of = {id(value): position for position, value in enumerate(inputs) if isinstance(value, torch.Tensor)}
    specs: list[OutputSpec] = []
    results: dict[int, int] = {}
    nodes: list[fx.Node] = []
    for value in outputs:
        real = recorder.real_constant(value) if isinstance(value, torch.Tensor) else value
        if id(value) in input_of:
            specs.append(InputItself(input_of[id(value)]))
        elif isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
            specs.append(Constant(value))
        elif real is not None and not isinstance(value, _SYMBOLIC):
            specs.append(Constant(real))
        elif value is None:
            specs.append(Constant(None))
        elif not isinstance(value, torch.Tensor) and not isinstance(recorder.argument(value), fx.Node):
            specs.append(Constant(recorder.argument(value)))
        else:
            if id(value) not in results:
                results[id(value)] = len(nodes)
                nodes.append(recorder.node_of(value))
            specs.append(_fresh(results[id(value)], value))
    return tuple(specs), nodes


def _fresh(result: int, value: Any) -> Fresh:
    if not isinstance(value, torch.Tensor):
        return Fresh(result)
    # what is made where gradients are off of a base that has them says that it requires grad, and has no history
    return Fresh(result, tuple(map(plain_size, value.stride())), value.requires_grad and not value.is_leaf)


def _is_flat(result: Any) -> bool:
    """Tell whether a program returned a plain tuple or list of leaves."""
    return type(result) in (tuple, list) and all(pytree.tree_is_leaf(item) for item in result)
