"""Calls with subgraphs while recording: each function is recorded into a graph of its own, and the call is one node.

The gradient of a call is a call as well: each function of it runs the forward function again and then goes back from
what that gave. So gradients of gradients need no rule, and nothing is kept but the operands. Random numbers would be
drawn anew: a function that draws some can't be differentiated.
"""

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
from intarsia_ir.aten import effects
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.higher_order import HIGHER_ORDER, HigherOrderOp, Layout
from intarsia_recorder._fx import graph_module
from intarsia_recorder.iteration import is_dense
from intarsia_recorder.metacache import snapshot
from intarsia_recorder.recorder import Recorder
from intarsia_recorder.strides import with_strides_of

__all__ = ["call_higher_order", "no_saved_tensors_hooks"]

Body = Callable[..., Sequence[Any]]
_NONE: Mapping[str, int] = MappingProxyType({})
_HOOKS: Any = torch._C._autograd


def call_higher_order(
    recorder: Recorder, name: str, bodies: Sequence[Body], operands: Sequence[Any], options: Mapping[str, int] = _NONE
) -> Sequence[Any]:
    """Record a call of a higher-order op, differentiable where gradients are needed; return its results.

    Args:
        recorder: Where the call goes.
        name: Key of `HIGHER_ORDER`.
        bodies: Its functions, over fake tensors and numbers: each gives a tuple of tensors.
        operands: Fake tensors and numbers.
        options: Whole numbers, as the row of the op has them.

    Raises:
        UnsupportedError: `recorder.higher_order`: the functions give different tensors, or tensors whose sizes depend
            on data; `recorder.higher_order_random`: gradients are needed of a function that draws random numbers;
            `recorder.higher_order_gradient`: gradients are needed of a loop.
    """
    if name in _LOOPS:  # an iteration is given what the one before gave, which is laid out as what it was given
        n_dense = sum(options.values())
        operands = [*[_dense(x) for x in operands[:n_dense]], *operands[n_dense:]]
    if name == "scan":
        _refuse_no_rows(recorder, operands[options["carried"] :][: options["scanned"]])
    given = [*operands, *_other_sizes(recorder, operands)]
    bodies = [_taking(body, len(operands) - _N_OWN[name]) for body in bodies]
    graded = any(isinstance(x, torch.Tensor) and x.requires_grad for x in given[_N_OWN[name] :])
    if torch.is_grad_enabled() and graded and name in _LOOPS:
        raise UnsupportedError(
            f"gradients are needed of a {name}",
            code="recorder.higher_order_gradient",
            where=recorder.where or (),
            hints=(
                "call it under torch.no_grad(), or detach what it is given",
                "write a loop of Python, which unrolls",
            ),
        )
    if torch.is_grad_enabled() and graded:
        results: Sequence[Any] = _Call.apply(recorder, name, bodies, *given)  # type: ignore[no-untyped-call]
        return results
    return _record(recorder, name, bodies, given, options)[1]


def _dense(value: Any) -> Any:
    """Return a tensor whose elements fill one piece of memory."""
    return value if not isinstance(value, torch.Tensor) or is_dense(value) else value.clone()


#: Operands that aren't handed to the functions: a predicate.
_N_OWN: Mapping[str, int] = MappingProxyType({"cond": 1, "while_loop": 0, "scan": 0})
_LOOPS = ("while_loop", "scan")


def _refuse_no_rows(recorder: Recorder, scanned: Sequence[torch.Tensor]) -> None:
    lengths = [x.shape[0] if x.dim() else 0 for x in scanned]
    if not lengths or not all(statically_known_true(n == lengths[0]) and statically_known_true(n > 0) for n in lengths):
        raise UnsupportedError(
            f"a scan over {lengths or 'no'} rows: tensors of equally many rows, one at least, are needed",
            code="recorder.higher_order",
            where=recorder.where or (),
        )


def _taking(body: Body, n_inputs: int) -> Body:
    """Return a function that leaves out operands behind the first."""
    return lambda *given: body(*given[:n_inputs])


def _other_sizes(recorder: Recorder, operands: Sequence[Any]) -> Iterator[torch.SymInt]:
    """Yield the size symbols that operands depend on and don't show, such as that of a tensor of `2 * s0` elements."""
    symbolic = [
        number.node.expr
        for x in operands
        for number in ((*x.shape, *x.stride(), x.storage_offset()) if isinstance(x, torch.Tensor) else (x,))
        if isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool))
    ]
    shown = {expression for expression in symbolic if expression.is_Symbol}
    needed = {symbol for expression in symbolic for symbol in expression.free_symbols} - shown
    for symbol in sorted(needed, key=str):
        yield recorder.symbols.number(symbol)


def _record(
    recorder: Recorder, name: str, bodies: Sequence[Body], operands: Sequence[Any], options: Mapping[str, int] = _NONE
) -> tuple[HigherOrderOp, tuple[Any, ...]]:
    """Record the functions, then the call; return what is called, and its results."""
    row = HIGHER_ORDER[name]
    # what an iteration gives to carry looks like what it was given; a scan gives more behind that
    like: Sequence[Any] | None = operands[: options["carried"]] if name in _LOOPS else None
    programs = []
    given = _given(recorder, name, options, operands)
    for number, body in enumerate(bodies):
        is_alike = number in row.alike
        program, given_back = _record_body(recorder, body, given, like if is_alike else None, more=name == "scan")
        like = given_back if is_alike else like
        programs.append(program)
    results = tuple([_fresh(recorder, layout) for layout in row.layouts(options, operands, like or ())])
    op = HigherOrderOp(name, programs, options)
    recorder.whole(op, tuple(operands), results)
    return op, results


def _given(recorder: Recorder, name: str, options: Mapping[str, int], operands: Sequence[Any]) -> Sequence[Any]:
    """Return what the functions are called with: what isn't the call's own, and one row of what is scanned."""
    if name != "scan":
        return operands[_N_OWN[name] :]
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


# ---- gradients -------------------------------------------------------------------------------------------------


class _Call(torch.autograd.Function):
    """A call for autograd."""

    @staticmethod
    def forward(ctx: Any, recorder: Recorder, name: str, bodies: Sequence[Body], *operands: Any) -> tuple[Any, ...]:
        ctx.call = recorder, name, [_as_it_ran(body) for body in bodies]
        ctx.save_for_backward(*[x for x in operands if isinstance(x, torch.Tensor)])
        ctx.others = [None if isinstance(x, torch.Tensor) else x for x in operands]
        op, results = _record(recorder, name, bodies, operands)
        if effects(op).random or effects(op).communicates:
            raise UnsupportedError(
                f"gradients are needed of a function of {name} that draws random numbers or exchanges data",
                code="recorder.higher_order_random",
                where=recorder.where or (),
                hints=("draw them before the call, and pass them", f"call {name} under torch.no_grad()"),
            )
        ctx.differentiable = [n for n, x in enumerate(results) if x.is_floating_point() or x.is_complex()]
        ctx.mark_non_differentiable(*[x for n, x in enumerate(results) if n not in ctx.differentiable])
        return results

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        recorder, name, bodies = ctx.call
        tensors = iter(ctx.saved_tensors)
        operands = [next(tensors) if x is None else x for x in ctx.others]
        n_own = _N_OWN[name]
        wanted = [n for n, needed in enumerate(ctx.needs_input_grad[3 + n_own :]) if needed]
        gradients = [_gradient_of(body, len(operands) - n_own, wanted, ctx.differentiable) for body in bodies]
        given = [tangents[n] for n in ctx.differentiable]
        gradients_of_operands = iter(call_higher_order(recorder, name, gradients, [*operands, *given]))
        return (None,) * (3 + n_own) + tuple(
            next(gradients_of_operands) if n in wanted else None for n in range(len(operands) - n_own)
        )


def _as_it_ran(body: Body) -> Body:
    """Return a function that runs under the autocast state of now, whatever that of its caller is."""
    kinds = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    states = [(kind, torch.get_autocast_dtype(kind)) for kind in kinds]

    def run(*given: Any) -> Sequence[Any]:
        with contextlib.ExitStack() as stack:
            for kind, dtype in states:
                stack.enter_context(torch.autocast(kind, dtype=dtype, cache_enabled=False))
            return body(*given)

    return run if states else body


def _gradient_of(body: Body, n_inputs: int, wanted: Sequence[int], differentiable: Sequence[int]) -> Body:
    """Return the function from inputs and tangents of differentiable results to the gradients of wanted inputs."""

    def gradient(*given: Any) -> Sequence[Any]:
        inputs, tangents = list(given[:n_inputs]), given[n_inputs:]
        create_graph = torch.is_grad_enabled()  # this is differentiated itself
        with torch.enable_grad():
            for n in wanted:
                if not inputs[n].requires_grad:
                    inputs[n] = inputs[n].detach().requires_grad_()
            results = body(*inputs)
            pairs = [(results[n], t) for n, t in zip(differentiable, tangents, strict=True) if results[n].requires_grad]
            sources = [inputs[n] for n in wanted]
            gradients_of_sources: Sequence[Any] = [None] * len(wanted)
            if pairs:
                roots, ends = zip(*pairs, strict=True)
                gradients_of_sources = torch.autograd.grad(
                    roots, sources, ends, allow_unused=True, create_graph=create_graph
                )
        return [torch.zeros_like(x) if g is None else g for x, g in zip(sources, gradients_of_sources, strict=True)]

    return gradient


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
