"""Steps of torch's own optimizers: what their Python does besides computing, in a form that can be evaluated.

A step asks for graph breaks around itself, for another compiler's sake, and reads its counters as Python numbers unless
a compiler runs. Here its grad mode is a region of the graph, and a counter is a float64 tensor: what is computed from
it rounds as Python's floats do. Where a step branches on such a number (RAdam, ASGD), the form of it is evaluated that
is meant for graphs on a GPU, and chooses by `torch.where`. Adafactor, which takes the larger of such numbers, is
written out in `adafactor`.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import adam, adamax, asgd, nadam, radam, rprop
from torch.optim.optimizer import _get_value, _stack_if_compiling

from intarsia_pyeval import do
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import NONE, Const
from intarsia_pyeval.values.sequences import Items
from intarsia_pyeval.values.signatures import arity
from intarsia_tensorcapture.adafactor import STEPS as ADAFACTOR
from intarsia_tensorcapture.tensor import TensorValue

if TYPE_CHECKING:
    from intarsia_pyeval.state.frames import Frames
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["HANDLERS", "asks_to_capture_on_cpu", "call_step"]


def call_step(tx: Tracer, function: FunctionType, args: Sequence[Value], keywords: Keywords) -> Value | None:
    """Call a step that sets its own grad mode; None when `function` isn't one."""
    code = function.__code__
    if code.co_name != "_use_grad" or function.__globals__ is not _get_value.__globals__:
        return None
    step = (function.__closure__ or ())[code.co_freevars.index("func")].cell_contents
    return do.call(tx, tx.live.wrap(_stepped, None), [tx.live.wrap(step, None), *args], keywords)


def _stepped(step: Any, self: Any, *args: Any, **keywords: Any) -> Any:
    before = torch.is_grad_enabled()
    try:
        torch.set_grad_enabled(self.defaults["differentiable"])
        return step(self, *args, **keywords)
    finally:
        torch.set_grad_enabled(before)


def asks_to_capture_on_cpu(frames: Frames) -> bool:
    """Tell whether the frame is a step's that eager refuses, and that torch lets a compiler do unasked."""
    frame = frames.top()
    capturable, params = frame.locals.get("capturable"), frame.locals.get("params")
    if not (frame.module_name() or "").startswith("torch.optim.") or not isinstance(params, Items):
        return False
    first = params.items[0] if params.items else None
    on_cpu = isinstance(first, TensorValue) and first.fake.device.type == "cpu"
    return on_cpu and isinstance(capturable, Const) and capturable.value is True


class _Unlabelled(contextlib.ContextDecorator):
    """What a label for the profiler is in compiled code: nothing."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *details: object) -> None:
        return None


def _label(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    return do.call(tx, tx.live.wrap(_Unlabelled, None), [], {})


def _enter_label(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Enter a label that was made before, such as a decorator's."""
    return args[0]


def _leave_label(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    return NONE


def _counter(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Read a counter: as wide as the Python number that eager computes with."""
    (value,) = arity("_get_value", args, keywords, 1)
    if not isinstance(value, TensorValue) or not value.fake.is_floating_point():
        return value
    return plugin.record(tx, "call_method", "to", [value, Const(torch.float64)], {})


def _same(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Keep a list of numbers a list: each keeps its width, and goes beside its own tensor."""
    (value,) = arity("_stack_if_compiling", args, keywords, 1)
    return value


def _without_branches(step: FunctionType, single: FunctionType) -> Any:
    """Return a handler of `step`, which evaluates it in its `capturable` form with wide counters.

    Args:
        step: Updates the parameters of a group.
        single: The same, one parameter at a time.
    """
    as_written, plain = _unhandled(step), _unhandled(single)

    def counted(*lists: Any, **keywords: Any) -> None:
        *others, counters = lists
        for counter in counters:
            counter += 1
        before = [counter.to(torch.float64) - 1 for counter in counters]  # the step counts on in these
        # not True: that is what a user asks for, and eager refuses on a CPU
        plain(*others, before, **{**keywords, "capturable": 1})

    def handle(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        capturable = keywords.get("capturable")
        asked = isinstance(capturable, Const) and capturable.value is True
        return do.call(tx, tx.live.wrap(as_written if asked else counted, None), args, keywords)

    return handle


def _lengthened(step: FunctionType) -> Any:
    """Return a handler of `step`, which evaluates it on rows of one element where a parameter has no dimensions.

    Beside a counter that is a tensor of doubles, as here, torch would compute a 0-dim float32 tensor in doubles;
    beside eager's Python number it doesn't, nor does it with a row.
    """
    as_written = _unhandled(step)
    numbers = [name in ("mu_products", "state_steps") for name in inspect.signature(step).parameters]

    def on_rows(*lists: Any, **keywords: Any) -> None:
        rows = [
            values if of_numbers or not isinstance(values, list) else [t if t.dim() else t.view(1) for t in values]
            for values, of_numbers in zip(lists, numbers, strict=False)
        ]
        as_written(*rows, **keywords)

    def handle(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        params = args[0].items if args and isinstance(args[0], Items) else ()
        followed = keywords.get("differentiable")
        short = any(isinstance(p, TensorValue) and not p.fake.dim() for p in params)
        rows = short and isinstance(followed, Const) and not followed.value
        return do.call(tx, tx.live.wrap(on_rows if rows else as_written, None), args, keywords)

    return handle


def _instead(written: FunctionType) -> Any:
    """Return a handler that evaluates another function in place of a step."""

    def handle(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        return do.call(tx, tx.live.wrap(written, None), args, keywords)

    return handle


def _unhandled(function: FunctionType) -> FunctionType:
    """Return a function that does the same, and has no handler."""
    code, defaults, cells = function.__code__, function.__defaults__, function.__closure__
    copy = FunctionType(code, function.__globals__, function.__name__, defaults, cells)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


# steps that branch on their counters: one parameter at a time, and several
_BRANCHING: tuple[tuple[Any, Any], ...] = (
    (radam._single_tensor_radam, radam._multi_tensor_radam),
    (asgd._single_tensor_asgd, asgd._multi_tensor_asgd),
)
# steps that compute with their counters, or choose elements by masks
_COUNTING: tuple[Any, ...] = (
    adam._single_tensor_adam,
    adamax._single_tensor_adamax,
    nadam._single_tensor_nadam,
    rprop._single_tensor_rprop,
    rprop._multi_tensor_rprop,
)
HANDLERS: dict[Any, Any] = {
    torch.autograd.profiler.record_function: _label,
    torch.autograd.profiler.record_function.__enter__: _enter_label,
    torch.autograd.profiler.record_function.__exit__: _leave_label,
    _get_value: _counter,
    _stack_if_compiling: _same,
    **{step: _without_branches(step, single) for single, several in _BRANCHING for step in (single, several)},
    **{step: _lengthened(step) for step in _COUNTING},
    **{step: _instead(written) for step, written in ADAFACTOR.items()},
}
