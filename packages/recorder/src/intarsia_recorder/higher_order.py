"""Calls with subgraphs, differentiable where gradients are needed.

The gradient of a call is a call as well: each function of it runs the forward function again and then goes back from
what that gave. So gradients of gradients need no rule, and nothing is kept but the operands; of a scan, what each row
was given to carry is, too. A loop whose length nobody knows runs once more before its gradient does, which has none
itself. Random numbers would be drawn anew: a function that draws some can't be differentiated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from intarsia_ir.aten import effects
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.higher_order import HigherOrderOp
from intarsia_recorder.iteration import is_dense
from intarsia_recorder.recorder import Recorder
from intarsia_recorder.subgraphs import LOOPS, N_OWN, NO_OPTIONS, Body, record_call

__all__ = ["call_higher_order"]


def call_higher_order(
    recorder: Recorder,
    name: str,
    bodies: Sequence[Body],
    operands: Sequence[Any],
    options: Mapping[str, int] = NO_OPTIONS,
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
            `recorder.higher_order_gradient`: gradients are needed of the gradient of a `while_loop`.
    """
    if name in LOOPS:  # an iteration is given what the one before gave, which is laid out as what it was given
        n_dense = sum(options.values())
        operands = [*[_dense(x) for x in operands[:n_dense]], *operands[n_dense:]]
    if name == "scan":
        _refuse_no_rows(recorder, operands[options["carried"] :][: options["scanned"]])
    given = [*operands, *_other_sizes(recorder, operands)]
    bodies = [_taking(body, len(operands) - N_OWN[name]) for body in bodies]
    graded = any(isinstance(x, torch.Tensor) and x.requires_grad for x in given[N_OWN[name] :])
    if not (torch.is_grad_enabled() and graded):
        return record_call(recorder, name, bodies, given, options)[1]
    if name == "scan":
        results: Sequence[Any] = _Scan.apply(recorder, bodies[0], options, *given)  # type: ignore[no-untyped-call]
        return results[: len(results) - options["carried"]]
    if name == "while_loop":
        finals: Sequence[Any] = _WhileLoop.apply(recorder, bodies, options, *given)  # type: ignore[no-untyped-call]
        return finals
    if name == "unwind":
        raise UnsupportedError(
            "gradients are needed of the gradient of a while_loop",
            code="recorder.higher_order_gradient",
            where=recorder.where or (),
            hints=("write a loop of Python, which unrolls, or a scan",),
        )
    results = _Call.apply(recorder, name, bodies, *given)  # type: ignore[no-untyped-call]
    return results


def _dense(value: Any) -> Any:
    """Return a tensor whose elements fill one piece of memory."""
    return value if not isinstance(value, torch.Tensor) or is_dense(value) else value.clone()


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


# ---- gradients -------------------------------------------------------------------------------------------------


class _Call(torch.autograd.Function):
    """A call for autograd."""

    @staticmethod
    def forward(ctx: Any, recorder: Recorder, name: str, bodies: Sequence[Body], *operands: Any) -> tuple[Any, ...]:
        ctx.call = recorder, name, [_as_it_ran(body) for body in bodies]
        ctx.save_for_backward(*[x for x in operands if isinstance(x, torch.Tensor)])
        ctx.others = [None if isinstance(x, torch.Tensor) else x for x in operands]
        op, results = record_call(recorder, name, bodies, operands)
        _refuse_what_cannot_run_again(recorder, name, op)
        ctx.differentiable = _differentiable(results)
        ctx.mark_non_differentiable(*[x for n, x in enumerate(results) if n not in ctx.differentiable])
        return results

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        recorder, name, bodies = ctx.call
        tensors = iter(ctx.saved_tensors)
        operands = [next(tensors) if x is None else x for x in ctx.others]
        n_own = N_OWN[name]
        wanted = [n for n, needed in enumerate(ctx.needs_input_grad[3 + n_own :]) if needed]
        gradients = [_gradient_of(body, len(operands) - n_own, wanted, ctx.differentiable) for body in bodies]
        given = [tangents[n] for n in ctx.differentiable]
        gradients_of_operands = iter(call_higher_order(recorder, name, gradients, [*operands, *given]))
        return (None,) * (3 + n_own) + tuple(
            next(gradients_of_operands) if n in wanted else None for n in range(len(operands) - n_own)
        )


class _WhileLoop(torch.autograd.Function):
    """A loop for autograd.

    Its gradient runs the loop again, now keeping what each iteration was given, and goes back through them: it hands on
    the gradients of what was carried, and the sums of those of what all iterations share.
    """

    @staticmethod
    def forward(
        ctx: Any, recorder: Recorder, bodies: Sequence[Body], options: Mapping[str, int], *operands: Any
    ) -> tuple[Any, ...]:
        ctx.call = recorder, [_as_it_ran(body) for body in bodies], options["carried"]
        op, results = record_call(recorder, "while_loop", bodies, operands, options)
        _refuse_what_cannot_run_again(recorder, "while_loop", op)
        ctx.save_for_backward(*[x for x in operands if isinstance(x, torch.Tensor)])
        ctx.others = [None if isinstance(x, torch.Tensor) else x for x in operands]
        ctx.differentiable = _differentiable(results)
        ctx.mark_non_differentiable(*[x for n, x in enumerate(results) if n not in ctx.differentiable])
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        recorder, (condition, body), n_carried = ctx.call
        tensors = iter(ctx.saved_tensors)
        inputs = [next(tensors) if x is None else x for x in ctx.others]
        carried = ctx.differentiable
        summed = [n for n, needed in enumerate(ctx.needs_input_grad[3:]) if needed and n >= n_carried]
        n_back = len(carried) + len(summed)
        gradient = _gradient_of(body, len(inputs), [*carried, *summed], carried)

        def forward(function: Body) -> Body:
            return lambda *given: function(*given[:n_carried], *given[n_carried + n_back :])

        def one_iteration(*given: Any) -> Sequence[Any]:
            before, ahead, sums, others = _split(given, n_carried, len(carried), len(summed))
            found = gradient(*before, *others, *ahead)
            added = [total + x for total, x in zip(sums, found[len(carried) :], strict=True)]
            return [*found[: len(carried)], *added]

        begun = [
            torch.zeros_like(inputs[n]) if n >= n_carried or tangents[n] is None else tangents[n]
            for n in (*carried, *summed)
        ]
        given = [*inputs[:n_carried], *begun, *inputs[n_carried:]]
        how = {"carried": n_carried, "back": n_back}
        bodies = [forward(condition), forward(body), one_iteration]
        found = dict(zip([*carried, *summed], call_higher_order(recorder, "unwind", bodies, given, how), strict=True))
        return (None, None, None, *[found.get(n) for n in range(len(inputs))])


class _Scan(torch.autograd.Function):
    """A scan for autograd, which gives more than it was asked for: what each row was given to carry, stacked.

    Its gradient is a scan over the rows from the last to the first, which carries the gradients of what was carried and
    the sums of those of what all rows share. As results, what was carried has gradients of its own, of any order.
    """

    @staticmethod
    def forward(
        ctx: Any, recorder: Recorder, body: Body, options: Mapping[str, int], *operands: Any
    ) -> tuple[Any, ...]:
        n_carried = options["carried"]
        as_it_ran = _as_it_ran(body)
        ctx.call = recorder, lambda *given: (*as_it_ran(*given), *given[:n_carried]), options
        op, results = record_call(recorder, "scan", [ctx.call[1]], operands, options)
        _refuse_what_cannot_run_again(recorder, "scan", op)
        tensors = [x for x in operands[n_carried:] if isinstance(x, torch.Tensor)]
        ctx.save_for_backward(*results[len(results) - n_carried :], *tensors)
        ctx.others = [None if isinstance(x, torch.Tensor) else x for x in operands]
        ctx.differentiable = _differentiable(results)
        ctx.mark_non_differentiable(*[x for n, x in enumerate(results) if n not in ctx.differentiable])
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        recorder, body, options = ctx.call
        tensors = iter(ctx.saved_tensors)
        inputs = [next(tensors) if x is None else x for x in ctx.others]  # of the body, those of all rows at once
        n_carried, n_rows = options["carried"], sum(options.values())
        carried = [n for n in ctx.differentiable if n < n_carried]
        summed = [n for n, needed in enumerate(ctx.needs_input_grad[3:]) if needed and n >= n_rows]
        scanned = [n for n, needed in enumerate(ctx.needs_input_grad[3:]) if needed and n_carried <= n < n_rows]
        by_row = [n for n in ctx.differentiable if n >= n_carried and tangents[n] is not None]
        gradient = _gradient_of(body, len(inputs), [*carried, *summed, *scanned], [*carried, *by_row])

        def one_row(*given: Any) -> Sequence[Any]:
            ahead, sums, rest = _split(given, len(carried), len(summed))
            rows, by_row_here, shared = _split(rest, n_rows, len(by_row))
            found = gradient(*rows, *shared, *ahead, *by_row_here)
            before, added, of_rows = _split(found, len(carried), len(summed))
            return [*before, *[total + x for total, x in zip(sums, added, strict=True)], *of_rows]

        first = [torch.zeros_like(inputs[n][0]) if tangents[n] is None else tangents[n] for n in carried]
        backwards = [x.flip(0) for x in (*inputs[:n_rows], *[tangents[n] for n in by_row])]
        begun = [*first, *[torch.zeros_like(inputs[n]) for n in summed]]
        given = [*begun, *backwards, *inputs[n_rows:]]
        how = {"carried": len(begun), "scanned": len(backwards)}
        results = call_higher_order(recorder, "scan", [one_row], given, how)
        found = dict(zip([*carried, *summed, *scanned], results, strict=True))
        found.update({n: found[n].flip(0) for n in scanned})
        return (None, None, None, *[found.get(n) for n in range(len(inputs))])


def _split(values: Sequence[Any], *lengths: int) -> Sequence[Sequence[Any]]:
    """Return parts of these lengths, and the rest."""
    parts, start = [], 0
    for length in lengths:
        parts.append(values[start : start + length])
        start += length
    return [*parts, values[start:]]


def _differentiable(results: Sequence[torch.Tensor]) -> list[int]:
    return [n for n, x in enumerate(results) if x.is_floating_point() or x.is_complex()]


def _refuse_what_cannot_run_again(recorder: Recorder, name: str, op: HigherOrderOp) -> None:
    if effects(op).random or effects(op).communicates:
        raise UnsupportedError(
            f"gradients are needed of a function of {name} that draws random numbers or exchanges data",
            code="recorder.higher_order_random",
            where=recorder.where or (),
            hints=("draw them before the call, and pass them", f"call {name} under torch.no_grad()"),
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
