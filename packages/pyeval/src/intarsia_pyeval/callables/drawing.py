"""Functions of the `random` module: what they draw stays open, and is drawn in order before the graph runs.

Nobody can tell: the generator's state is seen by nothing between two draws but what breaks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics.opening import widened
from intarsia_pyeval.tracer import BuiltinCall
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.draws import Draw
from intarsia_pyeval.values.numbers import Bounds
from intarsia_pyeval.values.objects import Object

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["CALLS"]

_GLOBAL: Any = random.random.__self__  # type: ignore[attr-defined]
_RANDOM: Any = vars(random.Random.__base__)["random"]
_MOST = 1 << 53
#: Arguments -> bounds of what is drawn; None: any float.
Limits = Callable[..., Bounds | None]


def _uniform(a: float, b: float) -> Bounds:
    return widened(min(a, b), max(a, b))


def _normal(mu: float = 0.0, sigma: float = 1.0) -> None:
    return None


def _between(a: int, b: int) -> Bounds:
    if a > b:
        raise ValueError("nothing is between them")
    return (a, b)


def _range(start: int, stop: int | None = None) -> Bounds:
    low, high = (0, start) if stop is None else (start, stop)
    return _between(low, high - 1)


def _draw(drawn_by: Callable[..., Any], kind: type, limits: Limits) -> BuiltinCall:
    """Return the handler of a function of the module, which is a method of its one generator."""

    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        name = drawn_by.__name__
        given = list(args[1:])
        step = tx.checks.step()
        if not isinstance(args[0], Object) or args[0].identity() is not _GLOBAL:
            raise Break("tracer.call", f"{name} of a generator of the program's own isn't modelled")
        numbers = [a.value if isinstance(a, Const) and type(a.value) in (int, kind) else None for a in given]
        if step is None or None in numbers or keywords or any(n and abs(n) >= _MOST for n in numbers):
            raise Break("tracer.call", f"what random.{name} draws must be known, or what it is drawn from isn't")
        try:
            found = limits(*numbers)
        except (TypeError, ValueError):
            raise Break("tracer.exception", f"random.{name} raises") from None
        made = Draw(tx.guards, drawn_by, given, kind, found, step)
        tx.effects.draw(made)
        return made

    return handler


_METHODS: dict[Callable[..., Any], tuple[type, Limits]] = {
    random.uniform: (float, _uniform),
    random.gauss: (float, _normal),
    random.normalvariate: (float, _normal),
    random.randint: (int, _between),
    random.randrange: (int, _range),
}
#: How each is called.
CALLS: dict[Any, BuiltinCall] = {
    _RANDOM: _draw(random.random, float, lambda: (0.0, 1.0)),
    **{
        method.__func__: _draw(method, kind, limits)  # type: ignore[attr-defined]
        for method, (kind, limits) in _METHODS.items()
    },
}
