"""`functionalize`: FX(aten, effects) -> FX(aten), pure.

Before                                      after
  %1 = aten.view.default(%x, [6])             %1 = aten.view.default(%x, [6])
  %2 = aten.add_.Tensor(%1, 1)                %2 = aten.add.Tensor(%1, 1)
  %3 = aten.mul.Tensor(%x, 2)                 %3 = aten.view.default(%2, [2, 3])
  return (%3,)                                %4 = aten.mul.Tensor(%3, 2)
                                              return (%3, %4)      writes: x takes result 0

Side condition: tensors share storage only as the schemas of the ops between them say, and inputs that are written
don't overlap inputs that are read later (a guard, or UnsupportedError if they do at capture). Law: running the
result and then its signature's writes and outputs gives what running the original gives: values, strides,
mutations, aliasing.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.fx as fx
import torch.utils._pytree as pytree
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from intarsia_functionalizer.numbers import with_expressions
from intarsia_functionalizer.outputs import Outputs, describe_outputs
from intarsia_functionalizer.overlap import overlap_guards
from intarsia_functionalizer.rewriter import Rewriter
from intarsia_functionalizer.storage import Ref
from intarsia_ir import aten as aten_dialect
from intarsia_ir import meta
from intarsia_ir.errors import InvalidArgumentError, UnsupportedError
from intarsia_ir.records import AliasOfInput, AliasOfOutput, Constant, Fresh, InputItself, InputSpec, Signature
from intarsia_ir.values import Functional, Recorded
from intarsia_recorder import EagerMode, graph_module, snapshot
from intarsia_shapes import facts_behind, join_facts

__all__ = ["functionalize"]


def functionalize(program: fx.GraphModule | Recorded, *, fuel: int | None = None, check: bool = True) -> Functional:
    """Return the functional form of `program`: its writes and shared outputs move into the signature.

    Args:
        program: FX(aten, effects); values and origins on every node, as `to_aten` makes them. A bare graph module
            returns its outputs in order.
        fuel: Number of writes that may be rewritten, in program order; the rest stay as effects. None: all.
        check: Whether to verify the dialect on entry and exit.

    Returns:
        The graph, with one flat tuple of results; a signature that says what they are for; the facts of `program`
        and of this pass; and guards against overlap of written inputs with others.

    Raises:
        VerifyError: `program` isn't FX(aten, effects).
        UnsupportedError: A write that no functional op expresses, to a constant, or through overlapping inputs.
        InvalidArgumentError: `program` has writes in its signature and in its graph.

    Example:
        >>> import torch
        >>> from intarsia_functionalizer import to_aten
        >>> done = functionalize(to_aten(lambda x: x.view(-1).add_(1), (torch.zeros(2, 3),)))
        >>> [str(n.target) for n in done.graph_module.graph.nodes if n.op == "call_function"]
        ['aten.view.default', 'aten.add.Tensor', 'aten.view.default']
        >>> done.signature.writes
        (Write(input=0, result=0),)
    """
    origins = isinstance(program, Recorded)
    gm = program.graph_module if isinstance(program, Recorded) else program
    if check:
        aten_dialect.verify(gm, origins=origins)
    recorded = program if isinstance(program, Recorded) else _as_recorded(gm)
    if _is_functional(recorded):
        return _unchanged(recorded)
    graph, mode = _with_one_mode(gm.graph)
    rewriter = Rewriter(graph, mode, fuel, functional_subgraph)
    # composites with symbolic sizes come apart in Python: the C++ forms of some demand plain integers
    symbolic = contextlib.nullcontext() if mode.shape_env is None else enable_python_dispatcher()
    with torch.no_grad(), symbolic, mode:
        results = rewriter.run()
        values, requires_grad = _output_values(recorded.signature, rewriter, results)
        outputs = describe_outputs(rewriter, values, requires_grad, gm, _of_bases(recorded.signature))
    new = _finish(rewriter.graph, outputs, gm)
    signature = with_expressions(_new_signature(recorded.signature, outputs, rewriter), new)
    if check:
        aten_dialect.verify(new, functional=fuel is None, origins=origins)
    facts = join_facts(recorded.facts, facts_behind(meta.value(node) for node in gm.graph.find_nodes(op="placeholder")))
    return Functional(new, signature, facts, overlap_guards(rewriter, signature))


def functional_subgraph(gm: fx.GraphModule) -> fx.GraphModule:
    """Return the functional form of a graph of a higher-order op.

    Raises:
        UnsupportedError: `functionalize.subgraph`: it writes an input, or gives memory of an input, or twice the same.
    """
    done = functionalize(gm, check=False)
    fresh = [spec.result for spec in done.signature.outputs if isinstance(spec, Fresh)]
    if done.signature.writes or fresh != list(range(len(done.signature.outputs))):
        raise UnsupportedError(
            "a function of a higher-order op writes an input, or gives memory that isn't its own",
            code="functionalize.subgraph",
            where=next(iter(meta.origins(node) for node in gm.graph.nodes if meta.origins(node)), ()),
            hints=("let it compute new tensors: `x + 1` in place of `x.add_(1)`, `x.clone()` in place of `x`",),
        )
    graph: fx.GraphModule = done.graph_module
    return graph


def _as_recorded(gm: fx.GraphModule) -> Recorded:
    """Return a bare graph module with a signature: every output is what the graph returns."""
    inputs = []
    for node in gm.graph.find_nodes(op="placeholder"):
        if not meta.has_value(node):
            raise InvalidArgumentError(
                f"the placeholder {node.name} carries no value",
                code="functionalize.values",
                hints=("record the graph first: to_aten(gm, inputs)",),
            )
        value = meta.value(node)
        inputs.append(InputSpec(node.name, requires_grad=isinstance(value, torch.Tensor) and value.requires_grad))
    (output,) = gm.graph.find_nodes(op="output")
    leaves, tree = pytree.tree_flatten(output.args[0])
    flat = type(output.args[0]) in (tuple, list) and all(pytree.tree_is_leaf(item) for item in output.args[0])
    specs = tuple(Fresh(position) for position in range(len(leaves)))
    return Recorded(gm, Signature(tuple(inputs), specs, output_tree=None if flat else tree))


def _is_functional(recorded: Recorded) -> bool:
    """Tell whether the signature speaks of writes or shared outputs: then the graph must be functional already.

    Raises:
        InvalidArgumentError: It isn't.
    """
    shared = any(isinstance(spec, (AliasOfInput, AliasOfOutput)) for spec in recorded.signature.outputs)
    if not shared and not recorded.signature.writes:
        return False
    writing = [node for node in recorded.graph_module.graph.nodes if aten_dialect.node_effects(node).writes]
    if writing:
        raise InvalidArgumentError(
            f"the signature has writes or aliases, and {writing[0]} in the graph writes too", code="functionalize.twice"
        )
    return True


def _unchanged(recorded: Recorded) -> Functional:
    guards = recorded.guards if isinstance(recorded, Functional) else ()
    return Functional(recorded.graph_module, recorded.signature, recorded.facts, guards)


def _with_one_mode(graph: fx.Graph) -> tuple[fx.Graph, FakeTensorMode]:
    """Return a graph whose values are fake tensors of one mode, and the mode: `graph` itself if it can be.

    A tracer that ran on real tensors leaves values of as many modes as it has nodes.
    """
    values = [meta.value(node) if meta.has_value(node) else None for node in graph.nodes]
    tensors = list(_tensors_in(values))
    modes = {id(tensor.fake_mode): tensor.fake_mode for tensor in tensors if isinstance(tensor, FakeTensor)}
    mode = next(iter(modes.values()), None) or EagerMode(static_shapes=True)
    if len(modes) <= 1 and all(isinstance(tensor, FakeTensor) for tensor in tensors):
        return graph, mode

    def adopt(leaf: Any) -> Any:
        if isinstance(leaf, FakeTensor):
            return snapshot(mode, leaf)
        return mode.from_tensor(leaf, static_shapes=True) if isinstance(leaf, torch.Tensor) else leaf

    new = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node, value in zip(graph.nodes, values, strict=True):
        copies[node] = new.node_copy(node, copies.__getitem__)
        meta.set_value(copies[node], pytree.tree_map(adopt, value))
    return new, mode


def _tensors_in(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors_in(value)


def _output_values(signature: Signature, rewriter: Rewriter, results: Any) -> tuple[list[Any], list[bool]]:
    """Return what each output of the program is now, and whether it requires grad."""
    flat = list(results) if isinstance(results, (tuple, list)) else [results]
    flat = pytree.tree_leaves(flat, is_leaf=lambda leaf: leaf is None)
    values: list[Any] = []
    requires_grad: list[bool] = []
    for spec in signature.outputs:
        match spec:
            case Fresh(result, _, grad):
                values.append(flat[result])
                requires_grad.append(grad)
            case InputItself(position):
                values.append(rewriter.inputs[position] or rewriter.placeholders[position])
                requires_grad.append(signature.inputs[position].requires_grad)
            case Constant(value):
                values.append(value)
                requires_grad.append(False)
    return values, requires_grad


def _of_bases(signature: Signature) -> list[int]:
    """Return the outputs that have a tangent and no gradient themselves: the tangent is that of what they view."""
    tangents = signature.joint.tangents if signature.joint else ()
    positions = [t.position for t in tangents if not t.of_write]
    return [n for n in positions if isinstance(spec := signature.outputs[n], Fresh) and not spec.requires_grad]


def _finish(graph: fx.Graph, outputs: Outputs, root: fx.GraphModule) -> fx.GraphModule:
    """Add the output node, drop what nobody uses, and wrap the graph."""
    output = graph.output(tuple(outputs.results))
    meta.set_value(output, tuple(meta.value(node) for node in outputs.results))
    meta.set_origins(output, ())
    for node in reversed(graph.nodes):
        if node.users or node.op in ("placeholder", "output"):
            continue
        if node.op == "get_attr" or aten_dialect.node_effects(node).removable:
            graph.erase_node(node)
    holder = torch.nn.Module()
    for node in graph.find_nodes(op="get_attr"):
        _share_attribute(root, holder, str(node.target))
    return graph_module(holder, graph)


def _share_attribute(source: torch.nn.Module, target: torch.nn.Module, path: str) -> None:
    """Make the attribute of `source` at `path` an attribute of `target` as well."""
    *parents, name = path.split(".")
    value: Any = source
    for part in parents:
        value = getattr(value, part)
        if not hasattr(target, part):
            target.add_module(part, torch.nn.Module())
        target = getattr(target, part)
    setattr(target, name, getattr(value, name))


def _new_signature(old: Signature, outputs: Outputs, rewriter: Rewriter) -> Signature:
    written = {write.input for write in outputs.writes}
    inputs = tuple(dataclasses.replace(spec, written=n in written) for n, spec in enumerate(old.inputs))
    writes = tuple(
        dataclasses.replace(w, is_counted=_is_counted(old.inputs[w.input], rewriter.inputs[w.input]))
        for w in outputs.writes
    )
    return dataclasses.replace(old, inputs=inputs, outputs=tuple(outputs.specs), writes=writes)


def _is_counted(spec: InputSpec, ref: Ref | None) -> bool:
    """Tell whether eager counts the writes of an input.

    Recording counted them as eager does, but for ops that write lists of tensors.
    """
    return spec.n_writes != 0 or (ref is not None and ref.base.in_list)
