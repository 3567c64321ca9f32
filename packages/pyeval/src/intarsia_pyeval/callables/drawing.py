"""Functions of the `random` module: what they draw stays open, and is drawn in order before the graph runs.

Nobody can tell: the generator's state is seen by nothing between two draws but what breaks. Behind a seed that is known
what is drawn is known too; the generator goes the same steps before the graph runs.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics.opening import widened
from intarsia_pyeval.tracer import BuiltinCall
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import NONE, Const, is_none
from intarsia_pyeval.values.draws import Draw, Drawn, Step
from intarsia_pyeval.values.numbers import Bounds
from intarsia_pyeval.values.objects import Object
from intarsia_pyeval.values.sequences import List
from intarsia_pyeval.values.signatures import named

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["CALLS"]

_GLOBAL: Any = random.random.__self__  # type: ignore[attr-defined]
_RANDOM: Any = vars(random.Random.__base__)["random"]
_MOST = 1 << 53
_LONGEST = 256  # of what is drawn from: each number is a value of its own
#: Arguments -> bounds of what is drawn; None: any float.
Limits = Callable[..., Bounds | None]


def _uniform(a: float, b: float) -> Bounds:
    return widened(min(a, b), max(a, b))


def _any(first: float = 0.0, second: float = 1.0) -> None:
    return None


def _triangular(low: float = 0.0, high: float = 1.0, mode: float | None = None) -> Bounds:
    return widened(min(low, high), max(low, high))


def _bits(k: int) -> Bounds:
    return _between(0, (1 << k) - 1 if 0 < k <= 53 else -1)


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
            bounds = limits(*numbers)
        except (TypeError, ValueError):
            raise Break("tracer.exception", f"random.{name} raises") from None
        if tx.effects.generator is not None:
            _go(tx, drawn_by, given)
            return Const(getattr(tx.effects.generator, name)(*numbers))
        draw = Draw(tx.guards, drawn_by, given, kind, bounds, step)
        tx.effects.draw(draw)
        return draw

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
        if generator is None:
            return _order_of_numbers(tx, draws, args[1:], keywords)
        if keywords or len(args) != (3 if draws == "sample" else 2):
            raise Break("tracer.call", f"random.{draws} draws from a sequence what isn't known")
        if draws == "choices":
            raise Break("tracer.call", "random.choices draws behind a seed")
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


def _order_of_numbers(tx: Tracer, draws: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Draw from numbers that are known, by a generator that isn't: what is drawn stays open."""
    given = named(draws, args, keywords, _PARAMETERS[draws], 1)
    sequence, *rest = [given.get(name, NONE) for name in _PARAMETERS[draws]]
    step, items = tx.checks.step(), _numbers(tx, sequence)
    kinds = {type(n) for n in items}
    fits = 0 < len(items) <= _LONGEST and len(kinds) == 1 and (draws != "shuffle" or sequence.type() is list)
    if step is None or not fits:
        raise Break(
            "tracer.call",
            f"random.{draws} draws from {sequence.describe()}, which isn't known, or what it draws must be known",
        )
    size = rest[-1].as_python() if rest and isinstance(rest[-1], Const) else None
    size = {"choice": 1, "shuffle": len(items)}.get(draws, 1 if draws == "choices" and size is None else size)
    if type(size) is not int or not 0 <= size <= (len(items) if draws == "sample" else _LONGEST):
        raise Break("tracer.exception", f"random.{draws} may raise, or draws many")
    weights = {
        name: _numbers(tx, value)
        for name, value in zip(_WEIGHTS, rest, strict=False)
        if draws == "choices" and not is_none(value)
    }
    if any(len(candidates) != len(items) for candidates in weights.values()):
        raise Break("tracer.call", f"random.{draws} draws by weights that aren't known")
    choices = Drawn()
    tx.effects.draw(Step(partial(_several, draws, items, weights, size), [], gives=choices))
    limits = (min(items), max(items))
    drawn: list[Value] = []
    for at in range(size):
        draw = Draw(tx.guards, operator.getitem, [choices, Const(at)], kinds.copy().pop(), limits, step)
        tx.effects.draw(draw)
        drawn.append(draw)
    if draws != "shuffle":
        return drawn[0] if draws == "choice" else List(drawn)
    for at, item in enumerate(drawn):
        do.set_item(tx, sequence, Const(at), item)
    return NONE


_WEIGHTS = ("weights", "cum_weights")
#: Name of a method -> its parameters: what is drawn from first, how many are drawn last.
_PARAMETERS = {
    "choice": ("seq",),
    "sample": ("population", "k"),
    "shuffle": ("x",),
    "choices": ("population", *_WEIGHTS, "k"),
}


def _numbers(tx: Tracer, sequence: Value) -> list[Any]:
    """Return the numbers of a sequence; [] where they aren't known, or are no ints or floats that a double holds."""
    if not issubclass(sequence.type(), (list, tuple, range)):
        return []
    count = do.length(tx, sequence)
    elements = [do.get_item(tx, sequence, Const(at)) for at in range(count)] if count <= _LONGEST else []
    numbers = [item.value for item in elements if isinstance(item, Const) and type(item.value) in (int, float)]
    return numbers if len(numbers) == count and all(abs(n) < _MOST for n in numbers) else []


def _several(draws: str, items: Sequence[Any], weights: Mapping[str, Any], size: int) -> list[Any]:
    """Draw several numbers."""
    if draws == "shuffle":
        shuffled = list(items)
        random.shuffle(shuffled)
        return shuffled
    if draws == "choice":
        return [random.choice(items)]
    return random.sample(items, size) if draws == "sample" else random.choices(items, **weights, k=size)


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
    chosen: list[int] = [drawn] if draws == "choice" else drawn
    return chosen


_METHODS: dict[Callable[..., Any], tuple[type, Limits]] = {
    random.uniform: (float, _uniform),
    random.gauss: (float, _any),
    random.normalvariate: (float, _any),
    random.randint: (int, _between),
    random.randrange: (int, _range),
    random.expovariate: (float, _any),
    random.triangular: (float, _triangular),
    random.betavariate: (float, _any),
    random.gammavariate: (float, _any),
    random.lognormvariate: (float, _any),
}
#: How each is called.
CALLS: dict[Any, BuiltinCall] = {
    random.Random.seed: _seed,
    **{getattr(random.Random, name): _order(name) for name in _PARAMETERS},
    vars(random.Random.__base__)["getrandbits"]: _draw(random.getrandbits, int, _bits),
    _RANDOM: _draw(random.random, float, lambda: (0.0, 1.0)),
    **{
        method.__func__: _draw(method, kind, limits)  # type: ignore[attr-defined]
        for method, (kind, limits) in _METHODS.items()
    },
}
