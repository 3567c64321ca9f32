"""Library functions written in Python, for the evaluator to inline in place of their C versions.

Each does what its namesake documents. They only see values under evaluation, so they take no short cuts.
"""

from __future__ import annotations

import collections
import functools
import inspect
import itertools
import math
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import inlining
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.functions import Function
from intarsia_pyeval.values.iterators import Generator

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import BuiltinCall, Tracer

__all__ = [
    "STAND_INS",
    "accumulate",
    "add_note",
    "all_",
    "any_",
    "call_until",
    "chain",
    "chain_from_iterable",
    "combinations",
    "combinations_with_replacement",
    "compress",
    "count",
    "count_elements",
    "cycle",
    "dict_from_keys",
    "dropwhile",
    "filterfalse",
    "groupby",
    "islice",
    "max_",
    "min_",
    "model",
    "pairwise",
    "permutations",
    "polyfill",
    "product",
    "product_of",
    "reduce_",
    "registered_for",
    "repeat",
    "sequence_iterator",
    "starmap",
    "takewhile",
    "tee",
    "zip_longest",
]


# ruff: noqa: SIM110  (each is its namesake; any() can't be written by any())


def any_(iterable: Iterable[Any], /) -> bool:
    for element in iterable:
        if element:
            return True
    return False


def all_(iterable: Iterable[Any], /) -> bool:
    for element in iterable:
        if not element:
            return False
    return True


_MISSING = object()


def reduce_(function: Callable[[Any, Any], Any], iterable: Iterable[Any], initial: Any = _MISSING, /) -> Any:
    try:
        it = iter(iterable)
    except TypeError:
        raise TypeError("reduce() arg 2 must support iteration") from None
    if initial is _MISSING:
        try:
            value = next(it)
        except StopIteration:
            raise TypeError("reduce() of empty iterable with no initial value") from None
    else:
        value = initial
    for element in it:
        value = function(value, element)
    return value


def chain(*iterables: Iterable[Any]) -> Iterator[Any]:
    for iterable in iterables:
        yield from iterable


def chain_from_iterable(iterables: Iterable[Iterable[Any]], /) -> Iterator[Any]:
    return _chain(iter(iterables))


def _chain(iterables: Iterator[Iterable[Any]]) -> Iterator[Any]:
    for iterable in iterables:
        yield from iterable


def count(start: Any = 0, step: Any = 1) -> Iterator[Any]:
    while True:
        yield start
        start = start + step


def repeat(object: Any, times: int | None = None) -> Iterator[Any]:
    if times is None:
        while True:
            yield object
    for _ in range(times):
        yield object


def cycle(iterable: Iterable[Any], /) -> Iterator[Any]:
    return _cycle(iter(iterable))


def _cycle(it: Iterator[Any]) -> Iterator[Any]:
    saved = []
    for element in it:
        yield element
        saved.append(element)
    while saved:
        for element in saved:
            yield element


def islice(iterable: Iterable[Any], bound: Any, end: Any = _MISSING, step: Any = None, /) -> Iterator[Any]:
    start, stop = (0, bound) if end is _MISSING else (0 if bound is None else bound, end)
    step = 1 if step is None else step
    wanted = "must be None or an integer: 0 <= x <= sys.maxsize."
    if stop is not None and (not isinstance(stop, int) or stop == -1):
        raise ValueError(f"Stop argument for islice() {wanted}")
    if not isinstance(start, int) or start < 0 or (stop is not None and stop < 0):
        raise ValueError(f"Indices for islice() {wanted}")
    if not isinstance(step, int) or step < 1:
        raise ValueError("Step for islice() must be a positive integer or None.")
    return _islice(iter(iterable), start, stop, step)


def _islice(it: Iterator[Any], start: int, stop: int | None, step: int) -> Iterator[Any]:
    at = 0
    while stop is None or at < stop:
        try:
            element = next(it)
        except StopIteration:
            return
        if at >= start and (at - start) % step == 0:
            yield element
        at += 1


def accumulate(iterable: Iterable[Any], func: Any = None, *, initial: Any = None) -> Iterator[Any]:
    return _accumulate(iter(iterable), func, initial)


def _accumulate(it: Iterator[Any], function: Any, initial: Any) -> Iterator[Any]:
    total = initial
    if initial is None:
        try:
            total = next(it)
        except StopIteration:
            return
    yield total
    for element in it:
        total = total + element if function is None else function(total, element)
        yield total


def starmap(function: Callable[..., Any], iterable: Iterable[Iterable[Any]], /) -> Iterator[Any]:
    return _starmap(function, iter(iterable))


def _starmap(function: Callable[..., Any], it: Iterator[Iterable[Any]]) -> Iterator[Any]:
    for args in it:
        yield function(*args)


def takewhile(predicate: Callable[[Any], Any], iterable: Iterable[Any], /) -> Iterator[Any]:
    return _takewhile(predicate, iter(iterable))


def _takewhile(predicate: Callable[[Any], Any], it: Iterator[Any]) -> Iterator[Any]:
    for element in it:
        if not predicate(element):
            return
        yield element


def dropwhile(predicate: Callable[[Any], Any], iterable: Iterable[Any], /) -> Iterator[Any]:
    return _dropwhile(predicate, iter(iterable))


def _dropwhile(predicate: Callable[[Any], Any], it: Iterator[Any]) -> Iterator[Any]:
    for element in it:
        if not predicate(element):
            yield element
            break
    yield from it


def filterfalse(predicate: Callable[[Any], Any] | None, iterable: Iterable[Any], /) -> Iterator[Any]:
    return _filterfalse(predicate, iter(iterable))


def _filterfalse(predicate: Callable[[Any], Any] | None, it: Iterator[Any]) -> Iterator[Any]:
    for element in it:
        if not (element if predicate is None else predicate(element)):
            yield element


def compress(data: Iterable[Any], selectors: Iterable[Any]) -> Iterator[Any]:
    return _compress(iter(data), iter(selectors))


def _compress(data: Iterator[Any], selectors: Iterator[Any]) -> Iterator[Any]:
    for element, selected in zip(data, selectors, strict=False):
        if selected:
            yield element


def pairwise(iterable: Iterable[Any], /) -> Iterator[Any]:
    return _pairwise(iter(iterable))


def _pairwise(it: Iterator[Any]) -> Iterator[Any]:
    try:
        before = next(it)
    except StopIteration:
        return
    for element in it:
        yield before, element
        before = element


def zip_longest(*iterables: Iterable[Any], fillvalue: Any = None) -> Iterator[Any]:
    return _zip_longest([iter(it) for it in iterables], fillvalue)


def _zip_longest(iterators: list[Iterator[Any]], fillvalue: Any) -> Iterator[Any]:
    ended = [False] * len(iterators)
    while True:
        elements = []
        for number, it in enumerate(iterators):
            value = fillvalue
            if not ended[number]:
                try:
                    value = next(it)
                except StopIteration:
                    ended[number] = True
                    value = fillvalue
            elements.append(value)
        if all(ended):
            return
        yield tuple(elements)


def product(*iterables: Iterable[Any], repeat: int = 1) -> Iterator[Any]:
    return _product([tuple(pool) for pool in iterables] * repeat)


def _product(pools: list[tuple[Any, ...]]) -> Iterator[Any]:
    results: list[tuple[Any, ...]] = [()]
    for pool in pools:
        results = [(*head, tail) for head in results for tail in pool]
    yield from results


def combinations(iterable: Iterable[Any], r: int) -> Iterator[Any]:
    r = operator.index(r)
    pool = tuple(iterable)
    if r < 0:
        raise ValueError("r must be non-negative")
    return _combinations(pool, r)


def _combinations(pool: tuple[Any, ...], r: int) -> Iterator[Any]:
    n = len(pool)
    if r > n:
        return
    at = list(range(r))
    yield tuple([pool[i] for i in at])
    while True:
        for i in reversed(range(r)):
            if at[i] != i + n - r:
                break
        else:
            return
        at[i] += 1
        for j in range(i + 1, r):
            at[j] = at[j - 1] + 1
        yield tuple([pool[i] for i in at])


def combinations_with_replacement(iterable: Iterable[Any], r: int) -> Iterator[Any]:
    r = operator.index(r)
    pool = tuple(iterable)
    if r < 0:
        raise ValueError("r must be non-negative")
    return _combinations_with_replacement(pool, r)


def _combinations_with_replacement(pool: tuple[Any, ...], r: int) -> Iterator[Any]:
    if r and not pool:
        return
    at = [0] * r
    while True:
        yield tuple([pool[i] for i in at])
        for place in reversed(range(r)):
            if at[place] < len(pool) - 1:
                break
        else:
            return
        at[place:] = [at[place] + 1] * (r - place)


def permutations(iterable: Iterable[Any], r: int | None = None) -> Iterator[Any]:
    pool = tuple(iterable)
    if r is not None and not isinstance(r, int):
        raise TypeError("Expected int as r")
    r = len(pool) if r is None else r
    if r < 0:
        raise ValueError("r must be non-negative")
    return _permutations(pool, r)


def _permutations(pool: tuple[Any, ...], r: int) -> Iterator[Any]:
    if r > len(pool):
        return
    chosen: list[int] = []  # a path in the tree of choices, and the next one to try at its end
    following = 0
    while True:
        while len(chosen) < r and following < len(pool):
            if following not in chosen:
                chosen.append(following)
                following = 0
            else:
                following += 1
        if len(chosen) == r:
            yield tuple([pool[i] for i in chosen])
        if not chosen:
            return
        following = chosen.pop() + 1


def groupby(iterable: Iterable[Any], key: Any = None) -> Iterator[Any]:
    return _groupby(iter(iterable), key)


def _groupby(it: Iterator[Any], key: Any) -> Iterator[Any]:
    group = 0
    at: list[Any] = [None, None, group, False]  # an element, its key, the group that is given out, whether one is there
    if not _has_more(it, key, at):
        return
    while True:
        group += 1
        at[2] = group
        mine = at[1]
        yield mine, _group(it, key, at, mine, group)
        while _has_more(it, key, at) and at[1] in (mine,):
            at[3] = False
        if not at[3]:
            return


def _group(it: Iterator[Any], key: Any, at: list[Any], mine: Any, group: int) -> Iterator[Any]:
    while at[2] == group and _has_more(it, key, at) and at[1] in (mine,):
        at[3] = False
        yield at[0]


def _has_more(it: Iterator[Any], key: Any, at: list[Any]) -> bool:
    if not at[3]:
        try:
            element = next(it)
        except StopIteration:
            return False
        at[0], at[1], at[3] = element, element if key is None else key(element), True
    return True


def tee(iterable: Iterable[Any], n: int = 2, /) -> tuple[Iterator[Any], ...]:
    if n < 0:
        raise ValueError("n must be >= 0")
    it = iter(iterable)
    seen: list[Any] = []
    return tuple([_tee(it, seen) for _ in range(n)])


def _tee(it: Iterator[Any], seen: list[Any]) -> Iterator[Any]:
    at = 0
    while True:
        if at == len(seen):
            try:
                element = next(it)
            except StopIteration:
                return
            seen.append(element)
        yield seen[at]
        at += 1


def min_(*values: Any, key: Any = None, default: Any = _MISSING) -> Any:
    return _extreme("min", operator.lt, values, key, default)


def max_(*values: Any, key: Any = None, default: Any = _MISSING) -> Any:
    return _extreme("max", operator.gt, values, key, default)


_OF_NOTHING = (
    "{name}() arg is an empty sequence" if sys.version_info < (3, 12) else "{name}() iterable argument is empty"
)


def _extreme(name: str, better: Any, values: Any, key: Any, default: Any) -> Any:
    it = iter(values[0] if len(values) == 1 else values)
    try:
        best = next(it)
    except StopIteration:
        if default is _MISSING:
            raise ValueError(_OF_NOTHING.format(name=name)) from None
        return default
    best_key = best if key is None else key(best)
    for element in it:
        element_key = element if key is None else key(element)
        if better(element_key, best_key):
            best, best_key = element, element_key
    return best


def sequence_iterator(sequence: Any) -> Iterator[Any]:
    at = 0
    while True:
        try:
            element = sequence[at]
        except (IndexError, StopIteration):
            return
        yield element
        at += 1


def call_until(function: Callable[[], Any], sentinel: Any) -> Iterator[Any]:
    while True:
        element = function()
        if element == sentinel:
            return
        yield element


def dict_from_keys(keys: Iterable[Any], value: Any = None, /) -> dict[Any, Any]:
    mapping = {}
    for key in keys:
        mapping[key] = value
    return mapping


def product_of(iterable: Iterable[Any], /, *, start: Any = 1) -> Any:
    for element in iterable:
        start = start * element
    return start


def count_elements(mapping: Any, iterable: Iterable[Any], /) -> None:
    for element in iterable:
        mapping[element] = mapping.get(element, 0) + 1


def add_note(error: BaseException, note: str, /) -> None:
    if not isinstance(note, str):
        raise TypeError(f"note must be a str, not '{type(note).__name__}'")
    if not hasattr(error, "__notes__"):
        error.__notes__ = []
    error.__notes__.append(note)


def registered_for(registry: Mapping[type, Any], cls: type) -> Any:
    """What `functools.singledispatch` chooses, as long as no class is registered that others are subclasses of by hook.

    All that is registered is looked at: a class of that kind may come.
    """
    classes = list(registry)
    for base in cls.__mro__:
        if base in classes:
            return registry[base]
    raise RuntimeError("nothing is registered for object")


_WRITTEN: dict[Any, Callable[..., Any]] = {
    vars(collections)["_count_elements"]: count_elements,
    all: all_,
    any: any_,
    dict.fromkeys: dict_from_keys,
    functools.reduce: reduce_,
    itertools.accumulate: accumulate,
    itertools.chain: chain,
    itertools.chain.from_iterable: chain_from_iterable,
    itertools.combinations: combinations,
    itertools.combinations_with_replacement: combinations_with_replacement,
    itertools.compress: compress,
    itertools.count: count,
    itertools.cycle: cycle,
    itertools.dropwhile: dropwhile,
    itertools.filterfalse: filterfalse,
    itertools.groupby: groupby,
    itertools.islice: islice,
    itertools.pairwise: pairwise,
    itertools.permutations: permutations,
    itertools.product: product,
    itertools.repeat: repeat,
    itertools.starmap: starmap,
    itertools.takewhile: takewhile,
    itertools.tee: tee,
    itertools.zip_longest: zip_longest,
    math.prod: product_of,
    max: max_,
    min: min_,
}


def model(function: Callable[..., Any]) -> Function:
    """Return the model of one of the functions above."""
    assert isinstance(function, FunctionType)
    return Function(function)


def polyfill(tx: Tracer, name: str, args: Sequence[Value], keywords: Keywords | None = None) -> Value:
    """Inline one of the functions above, by its name."""
    return inlining.inline(tx, model(globals()[name]), args, keywords or {})


def _stand_in(function: Callable[..., Any], original: Any) -> BuiltinCall:
    """Return a handler that inlines a function in place of another; the iterator it makes is of the other's class."""
    cls = original if isinstance(original, type) else getattr(original, "__self__", None)
    cls = cls if isinstance(cls, type) and function is not dict_from_keys else None

    signature = inspect.signature(function)

    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        try:
            signature.bind(*args, **keywords)
        except TypeError as error:  # CPython's own names another function
            raise Break("tracer.exception", f"{function.__name__}: {error}") from None
        result = inlining.inline(tx, model(function), args, keywords)
        if isinstance(result, Generator) and cls is not None:
            result.cls = cls
        return result

    return handler


STAND_INS: dict[Any, BuiltinCall] = {original: _stand_in(function, original) for original, function in _WRITTEN.items()}
