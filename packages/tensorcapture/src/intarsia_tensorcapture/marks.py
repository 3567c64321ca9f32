"""What is marked: functions that aren't to be compiled, or evaluated, or that others stand for; compiled ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from intarsia_ir.errors import InvalidArgumentError, UnsupportedError
from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.functions import Function
from intarsia_pyeval.values.objects import Object
from intarsia_tensorcapture.kernel_calls import is_kernel, recording_launcher
from intarsia_tensorcapture.standing_in import StandIns

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["allow_in_graph", "call_marked_function", "call_marked_object", "stand_in_for", "substitute_in_graph"]

_F = TypeVar("_F", bound=Callable[..., Any])


def allow_in_graph(function: _F) -> _F:
    """Mark a function whose Python isn't evaluated: it is run once, on fake tensors, and its operations are recorded.

    For functions whose Python can't be captured, and which only compute: what else they do happens when they are
    compiled, and never again. They take and give tensors, numbers and texts, also in lists and tuples, and what they
    take from outside must not require gradients.

    Args:
        function: A Python function; it is returned.

    Raises:
        InvalidArgumentError: It isn't a Python function.

    Example:
        >>> import torch, intarsia_tensorcapture
        >>> @intarsia_tensorcapture.allow_in_graph
        ... def total(x):
        ...     return sum(vars(x).get("parts", [x]))
        >>> found = intarsia_tensorcapture.capture(lambda x: total(x * 2), (torch.ones(3),))
        >>> [node.name for node in found.graph_module.graph.nodes], found.breaks
        (['x', 'mul', 'total', 'output'], ())
    """
    if not isinstance(function, FunctionType):
        raise InvalidArgumentError(f"a Python function is needed, not {function!r}", code="marks.function")
    vars(function)["_intarsia_in_graph"] = True
    return function


def substitute_in_graph(original: Callable[..., Any]) -> Callable[[_F], _F]:
    """Return a decorator: where captured code calls `original`, the decorated function is evaluated instead.

    For functions that aren't captured, such as those written in C. The stand-in must do what the original does. It
    stands in for the rest of the process, in what is captured from now on.

    Args:
        original: A function written in Python or C.

    Raises:
        InvalidArgumentError: `original` can't be called or hashed; or, from the decorator, the parameters differ.

    Example:
        >>> import math, torch, intarsia_tensorcapture
        >>> @intarsia_tensorcapture.substitute_in_graph(math.dist)
        ... def dist(p, q, /):
        ...     return sum((a - b) ** 2 for a, b in zip(p, q)) ** 0.5
        >>> found = intarsia_tensorcapture.capture(lambda x: math.dist([x.sum()], [1.0]), (torch.ones(3),))
        >>> [node.name for node in found.graph_module.graph.nodes if node.op != "output"], found.breaks
        (['x', 'sum_1', 'sub', 'pow_1', 'add', 'pow_2'], ())
    """
    if not callable(original) or getattr(type(original), "__hash__", None) is None:
        raise InvalidArgumentError(f"a function is needed, not {original!r}", code="marks.function")

    def decorate(stand_in: _F) -> _F:
        _check_parameters(original, stand_in)
        _STAND_INS[original] = stand_in
        return stand_in

    return decorate


_STAND_INS: dict[Any, Callable[..., Any]] = {}


def _check_parameters(original: Any, stand_in: Any) -> None:
    """Compare the parameters of two functions, as far as those of the first are known."""
    try:
        wanted = inspect.signature(original).parameters.values()
    except (ValueError, TypeError):  # written in C, without a signature
        return
    kinds = [
        [(p.name, p.kind) for p in wanted],
        [(p.name, p.kind) for p in inspect.signature(stand_in).parameters.values()],
    ]
    if kinds[0] != kinds[1]:
        names = ["(" + ", ".join(name for name, _ in kind) + ")" for kind in kinds]
        raise InvalidArgumentError(
            f"{stand_in.__name__} takes {names[1]}, and what it stands for {names[0]}", code="marks.parameters"
        )


def stand_in_for(tx: Tracer, function: Any, args: Sequence[Value], keywords: Keywords) -> Value | None:
    """Call what stands for a function; None where nothing does."""
    stand_in = _STAND_INS.get(function) if _STAND_INS else None
    return None if stand_in is None else do.call(tx, tx.live.wrap(stand_in, None), args, keywords)


class InGraph:
    """What a node calls for a function that is marked by `allow_in_graph`.

    Args:
        function: The function.
    """

    def __init__(self, function: FunctionType) -> None:
        self.function = StandIns(is_kernel, recording_launcher).of(function)
        self.__name__ = function.__name__ if function.__name__.isidentifier() else "in_graph"  # a lambda's isn't one
        self.__qualname__, self.__module__ = self.__name__, function.__module__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self.function(*args, **kwargs)
        if not _is_plain(result):
            raise UnsupportedError(f"{self.__name__} returned a {type(result).__name__}", code="marks.result")
        return result


def _is_plain(result: Any) -> bool:
    """Tell whether a graph can give a result: tensors, numbers and texts, also in lists and tuples."""
    if type(result) in (list, tuple):
        return all(map(_is_plain, result))
    return result is None or isinstance(result, (torch.Tensor, bool, int, float, complex, str))


def call_marked_function(
    plugin: Recording, tx: Tracer, function: Function, args: Sequence[Value], keywords: Keywords
) -> Value | None:
    """Call a function that is marked; None for others.

    What torch's compiler wraps of its own for its own reasons is called; a function that isn't to be compiled breaks.
    """
    if getattr(function.value, "_intarsia_in_graph", False):
        function.guard_code(tx.guards)
        return plugin.record(tx, "call_function", InGraph(function.value), args, keywords)
    found = stand_in_for(tx, function.value, args, keywords)
    if found is not None:
        return found
    marked = getattr(function.value, "_torchdynamo_disable", False)
    if marked and _is_torchs(function.value):
        source = function.source and tx.sources.attribute(function.source, "__wrapped__")
        return do.call(tx, tx.live.wrap(vars(function.value)["__wrapped__"], source), args, keywords)
    wrapped = _within_a_setting(tx, function)
    if wrapped is not None:
        return do.call(tx, wrapped, args, keywords)
    if marked or getattr(function.value, "_intarsia_disable", False):
        raise Break("tracer.disabled", f"{function.describe()} is marked as not to be compiled")
    return None


def _within_a_setting(tx: Tracer, function: Function) -> Value | None:
    """Return what a wrapper of torch's calls within a setting of its compiler, as exported modules do for a check."""
    made = function.value
    if made.__qualname__ != "wrap_dunder_call_ctx_manager.<locals>.inner" or not made.__module__.startswith("torch."):
        return None
    index = made.__code__.co_freevars.index("func")
    cells = function.source and tx.sources.attribute(function.source, "__closure__")
    source = cells and tx.sources.attribute(tx.sources.item(cells, index), "cell_contents")
    return tx.live.wrap((made.__closure__ or ())[index].cell_contents, source)


def _is_torchs(function: Any) -> bool:
    """Tell whether a function is torch's own: its compiler, once imported, wraps some of these for its own reasons."""
    return (function.__module__ or "").partition(".")[0] == "torch" and hasattr(function, "__wrapped__")


def call_marked_object(tx: Tracer, callee: Object, args: Sequence[Value], keywords: Keywords) -> Value | None:
    """Call what a compiler made of a function: the function itself, unless it is marked as not to be compiled."""
    marks = getattr(callee.value, "__dict__", {})
    if marks.get("_intarsia_disable"):
        name = getattr(callee.value, "__qualname__", callee.describe())
        raise Break("tracer.disabled", f"{name} is marked as not to be compiled")
    scripted = marks.get("_torchdynamo_inline") if issubclass(type(callee.value), torch._C.ScriptFunction) else None
    if scripted is not None:  # what TorchScript compiled keeps the function that it was made of
        source = callee.source and tx.sources.attribute(callee.source, "_torchdynamo_inline")
        return do.call(tx, tx.live.wrap(scripted, source), args, keywords)
    if not marks.get("_intarsia_compiled"):
        return None
    source = callee.source and tx.sources.attribute(callee.source, "__wrapped__")
    return do.call(tx, tx.live.wrap(callee.value.__wrapped__, source), args, keywords)
