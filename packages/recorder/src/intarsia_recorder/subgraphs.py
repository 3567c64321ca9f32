"""Calls with subgraphs while recording: each function is recorded into a graph of its own, and the call is one node."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._mode_utils import no_dispatch

from intarsia_ir import meta
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.higher_order import HIGHER_ORDER, HigherOrderOp, Layout
from intarsia_recorder._fx import graph_module
from intarsia_recorder.metacache import snapshot
from intarsia_recorder.recorder import Recorder
from intarsia_recorder.strides import with_strides_of

__all__ = ["LOOPS", "NO_OPTIONS", "N_OWN", "Body", "no_saved_tensors_hooks", "record_call"]

Body = Callable[..., Sequence[Any]]
NO_OPTIONS: Mapping[str, int] = MappingProxyType({})
_HOOKS: Any = torch._C._autograd

#: Operands that aren't handed to the functions: a predicate.
N_OWN: Mapping[str, int] = MappingProxyType({"cond": 1, "while_loop": 0, "scan": 0, "unwind": 0})
LOOPS = ("while_loop", "scan", "unwind")


def record_call(
    recorder: Recorder,
    name: str,
    bodies: Sequence[Body],
    operands: Sequence[Any],
    options: Mapping[str, int] = NO_OPTIONS,
) -> tuple[HigherOrderOp, tuple[Any, ...]]:
    """Record the functions, then the call; return what is called, and its results."""
    row = HIGHER_ORDER[name]
    like: Sequence[Any] | None = None
    programs = []
    given = _given(recorder, name, options, operands)
    for number, body in enumerate(bodies):
        is_alike = number in row.alike
        expected = _handed_on(name, number, options, operands) or (like if is_alike else None)
        program, given_back = _record_body(recorder, body, given, expected, more=name == "scan")
        like = given_back if is_alike else like
        programs.append(program)
    results = tuple([_fresh(recorder, layout) for layout in row.layouts(options, operands, like or ())])
    op = HigherOrderOp(name, programs, options)
    recorder.whole(op, tuple(operands), results)
    return op, results


def _handed_on(name: str, number: int, options: Mapping[str, int], operands: Sequence[Any]) -> Sequence[Any] | None:
    """Return what the results of a function look like: the operands in whose place the next iteration has them.

    A scan gives more behind that.
    """
    if name not in LOOPS or HIGHER_ORDER[name].graphs[number] == "condition":
        return None
    n_carried = options["carried"]
    if HIGHER_ORDER[name].graphs[number] == "gradient":
        return operands[n_carried:][: options["back"]]
    return operands[:n_carried]


def _given(recorder: Recorder, name: str, options: Mapping[str, int], operands: Sequence[Any]) -> Sequence[Any]:
    """Return what the functions are called with: what isn't the call's own, and one row of what is scanned."""
    if name != "scan":
        return operands[N_OWN[name] :]
    start, end = options["carried"], sum(options.values())
    rows = [_fresh(recorder, Layout(x.shape[1:], x.stride()[1:], x.dtype, x.device)) for x in operands[start:end]]
    return [*operands[:start], *rows, *operands[end:]]


def _record_body(
    recorder: Recorder, body: Body, inputs: Sequence[Any], like: Sequence[Any] | None, *, more: bool = False
) -> tuple[fx.GraphModule, Sequence[Any]]:
    """Record a function into a graph of its own; return that and its results.

    These look like those of another function, or with `more` the first of them do.
    """
    with recorder.subgraph(), no_saved_tensors_hooks():
        fakes = [_as_input(recorder, x) for x in inputs]
        for number, fake in enumerate(fakes):
            recorder.placeholder(fake, f"arg{number}")
        given = body(*fakes)
        results = _own_memory([x for x in fakes if isinstance(x, torch.Tensor)], given)
        if like is not None:
            alike = results[: len(like)] if more else results
            _refuse_different(recorder, like, alike)
            alike = [with_strides_of(result, other) for result, other in zip(alike, like, strict=True)]
            results = [*alike, *results[len(alike) :]]
        _refuse_data(recorder)
        recorder.emit_deferred_asserts()
        output = recorder.graph.output(tuple([recorder.node_of(result) for result in results]))
        meta.set_value(output, tuple(results))
        meta.set_origins(output, ())
        recorder.forget_autograd()
        return graph_module(recorder.root, recorder.graph), results


def _as_input(recorder: Recorder, value: Any) -> Any:
    """Return an operand as a function sees it: a leaf, as far as gradients go."""
    if not isinstance(value, torch.Tensor):
        return value
    return snapshot(recorder.fake_mode, value).requires_grad_(value.requires_grad)


def _own_memory(inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copy results that share memory with an input, or with an earlier result, or are a part of what is in theirs."""
    seen = {x.untyped_storage()._cdata for x in inputs}
    copies = []
    for result in results:
        memory = result.untyped_storage()
        whole = statically_known_true(result.numel() * result.element_size() == memory.nbytes())
        copies.append(result if whole and memory._cdata not in seen else result.clone())
        seen.add(memory._cdata)
    return copies


def _fresh(recorder: Recorder, layout: Layout) -> FakeTensor:
    """Return a tensor that looks like this, in memory of its own."""
    with no_dispatch():
        raw = torch.empty_strided(tuple(layout.shape), tuple(layout.strides), dtype=layout.dtype, device="meta")
        return FakeTensor(recorder.fake_mode, raw, layout.device)


def _refuse_different(recorder: Recorder, these: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> None:
    shown = [[(x.dtype, x.device, tuple(map(str, x.shape))) for x in results] for results in (these, others)]
    if shown[0] != shown[1]:
        raise UnsupportedError(
            f"the functions of a call give {_described(these)} and {_described(others)}",
            code="recorder.higher_order",
            where=recorder.where or (),
            hints=("let both give tensors of the same sizes and element types",),
        )


def _described(results: Sequence[torch.Tensor]) -> str:
    return ", ".join(f"{x.dtype} {list(x.shape)} on {x.device}" for x in results) or "nothing"


def _refuse_data(recorder: Recorder) -> None:
    """Refuse sizes that only the running function knows: what is outside of it could not name them."""
    symbols = {s for node in recorder.graph.find_nodes(op="placeholder") for s in _symbols(meta.value(node))}
    for node in recorder.graph.nodes:
        if node.op == "call_function" and meta.has_value(node) and not symbols.issuperset(_symbols(meta.value(node))):
            raise UnsupportedError(
                f"{node} has a size that depends on data, in a function that is called conditionally",
                code="recorder.higher_order",
                where=meta.origins(node),
                hints=("compute what depends on data outside of the function, and pass it",),
            )


def _symbols(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _symbols(item)
    elif isinstance(value, torch.Tensor):
        yield from _symbols((*value.shape, *value.stride(), value.storage_offset()))
    elif isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        yield from value.node.expr.free_symbols


@contextlib.contextmanager
def no_saved_tensors_hooks() -> Iterator[None]:
    """Take off the hooks of who looks at what autograd saves."""
    taken = []
    while (hooks := _HOOKS._top_saved_tensors_default_hooks(True)) is not None:
        taken.append(hooks)
        _HOOKS._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(taken):
            _HOOKS._push_saved_tensors_default_hooks(pack, unpack)
