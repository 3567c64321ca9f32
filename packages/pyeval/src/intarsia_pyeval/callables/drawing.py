"""Functions of the `random` module: what they draw stays open, and is drawn in order before the graph runs.

Nobody can tell: the generator's state is seen by nothing between two draws but what breaks. Behind a seed that is known
what is drawn is known too; the generator goes the same steps before the graph runs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics.opening import widened
from intarsia_pyeval.tracer import BuiltinCall
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import NONE, Const
from intarsia_pyeval.values.draws import Draw, Step
from intarsia_pyeval.values.numbers import Bounds
from intarsia_pyeval.values.objects import Object
from intarsia_pyeval.values.sequences import List

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
        _check_global(args[0], name)
        numbers = [a.value if isinstance(a, Const) and type(a.value) in (int, kind) else None for a in given]
        if step is None or None in numbers or keywords or any(n and abs(n) >= _MOST for n in numbers):
            raise Break("tracer.call", f"what random.{name} draws must be known, or what it is drawn from isn't")
        try:
            found = limits(*numbers)
        except (TypeError, ValueError):
            raise Break("tracer.exception", f"random.{name} raises") from None
        if tx.effects.generator is not None:
            _go(tx, drawn_by, given)
            return Const(getattr(tx.effects.generator, name)(*numbers))
        made = Draw(tx.guards, drawn_by, given, kind, found, step)
        tx.effects.draw(made)
        return made

    return handler


def _check_global(generator: Value, name: str) -> None:
    if not isinstance(generator, Object) or generator.identity() is not _GLOBAL:
        raise Break("tracer.call", f"{name} of a generator of the program's own isn't modelled")


def _go(tx: Tracer, drawn_by: Callable[..., Any], args: Sequence[Value]) -> None:
    """Let the generator go a step before the graph runs, whose outcome is known here."""
    tx.effects.draw(Step(drawn_by, args))


def _seed(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Model `random.seed` with a number or text that is known."""
    _check_global(args[0], "seed")
    seed = args[1] if len(args) == 2 and not keywords else None
    if not isinstance(seed, Const) or type(seed.value) not in (int, float, str) or tx.checks.step() is None:
        raise Break("tracer.call", "random.seed is called with what isn't known")
    _go(tx, random.seed, [seed])
    tx.effects.generator = random.Random(seed.value)
    return NONE


def _order(draws: str) -> BuiltinCall:
    """Return the handler of a function that draws from a sequence, by the positions of what it draws."""

    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        _check_global(args[0], draws)
        generator = tx.effects.generator
        if generator is None or keywords or len(args) != (3 if draws == "sample" else 2):
            raise Break("tracer.call", f"random.{draws} draws from a sequence what isn't known")
        sequence, *rest = args[1:]
        if draws != "shuffle" and not issubclass(sequence.type(), (list, tuple, range)):
            raise Break("tracer.call", f"random.{draws} draws from {sequence.describe()}")
        if draws == "shuffle" and sequence.type() is not list:
            raise Break("tracer.call", f"random.shuffle moves the items of {sequence.describe()}")
        count = do.length(tx, sequence)
        sizes = [arg.as_python() if isinstance(arg, Const) else -1 for arg in rest]
        if (not count and draws == "choice") or any(type(k) is not int or not 0 <= k <= count for k in sizes):
            raise Break("tracer.exception", f"random.{draws} may raise")
        drawn = _positions(generator, draws, count, *sizes)
        _go(tx, partial(_positions, random, draws), [Const(count), *map(Const, sizes)])
        items = [do.get_item(tx, sequence, Const(at)) for at in drawn]
        if draws == "choice":
            return items[0]
        if draws == "sample":
            return List(items)
        for at, item in enumerate(items):
            do.set_item(tx, sequence, Const(at), item)
        return NONE

    return handler


def _positions(generator: Any, draws: str, count: int, *sizes: int) -> list[int]:
    """Draw as from a sequence of `count` items; return the positions of what is drawn.

    Args:
        generator: A generator, or the module.
        draws: Name of its method.
        count: How many items there are.
        sizes: What else it is given.
    """
    if draws == "shuffle":
        positions = list(range(count))
        generator.shuffle(positions)
        return positions
    drawn = getattr(generator, draws)(range(count), *sizes)  # no list: what is drawn from may be a long range
    found: list[int] = [drawn] if draws == "choice" else drawn
    return found


_METHODS: dict[Callable[..., Any], tuple[type, Limits]] = {
    random.uniform: (float, _uniform),
    random.gauss: (float, _normal),
    random.normalvariate: (float, _normal),
    random.randint: (int, _between),
    random.randrange: (int, _range),
}
#: How each is called.
CALLS: dict[Any, BuiltinCall] = {
    random.Random.seed: _seed,
    **{getattr(random.Random, name): _order(name) for name in ("choice", "sample", "shuffle")},
    _RANDOM: _draw(random.random, float, lambda: (0.0, 1.0)),
    **{
        method.__func__: _draw(method, kind, limits)  # type: ignore[attr-defined]
        for method, (kind, limits) in _METHODS.items()
    },
}
