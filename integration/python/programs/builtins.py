"""zip, enumerate, map, filter, sorted, any, all, isinstance, hasattr, getattr, context managers, exceptions."""

from __future__ import annotations

import contextlib
import operator

import torch
from torch import nn, randn

from integration.python.program import program


@program("zip", lambda: ([randn(2), randn(2)], [2.0, 3.0]))
def weighted_sum(items, weights):
    total = torch.zeros(2)
    for item, weight in zip(items, weights, strict=True):
        total = total + item * weight
    return total, list(zip("ab", range(5)))


@program("zip", lambda: ([(randn(2), 1), (randn(2), 2)],))
def transpose_pairs(pairs):
    tensors, numbers = zip(*pairs)
    return torch.stack(tensors), numbers, [a + b for a, b, _ in zip(tensors, numbers, iter("xyz"))]


@program("enumerate", lambda: ([randn(2), randn(2), randn(2)],))
def positions(items):
    out = [item * i for i, item in enumerate(items, start=1)]
    for i, item in enumerate(out):
        out[i] = item + i
    return out


@program("map", lambda: ([randn(2), randn(2)],))
def map_functions(items):
    doubled = list(map(lambda t: t * 2, items))
    return sum(map(torch.sum, doubled)), [*map(operator.add, items, (1, 2))], list(map(int, ["3", "4"]))


@program("map", lambda: (randn(4, 2),))
def map_over_rows(x):
    first, *others = map(torch.relu, x)
    return first, torch.stack(others), dict(map(lambda i: (str(i), i), range(2)))


@program("filter", lambda: ([randn(2), None, randn(3)],))
def drop_what_is_missing(items):
    present = list(filter(lambda t: t is not None, items))
    return torch.cat(present), list(filter(None, [0, 1, "", "a"]))


@program("filter", lambda: ([randn(2, 3), randn(3), randn(2, 3)],))
def filter_by_rank(items):
    matrices = filter(lambda t: t.dim() == 2, items)
    return sum(m.sum(0) for m in matrices), next(filter(lambda t: t.dim() > 5, items), None)


@program("sorted", lambda: ({"b": randn(2), "a": randn(2), "c": randn(2)},))
def stable_order_of_a_state(state):
    names = sorted(state, key=lambda name: (name != "c", name))
    best = max(state, key=lambda name: ord(name[0]))
    return torch.stack([state[n] for n in names]), names, best, min([(2, "x"), (1, "y")])


@program("any and all", lambda: ([randn(2), randn(2)],))
def check_shapes(items):
    assert all(t.shape == items[0].shape for t in items), "shapes differ"
    if any(t.dim() > 1 for t in items):
        return items[0]
    return torch.stack(items), any([]), all([])


@program("any and all", lambda: (randn(3), [None, 0, 3]))
def any_stops_early(x, options):
    seen = []

    def look(v):
        seen.append(v)
        return v

    found = any(look(v) for v in options if v is not None)
    return x * found, seen, all(map(look, [1, 0, 2])), seen


class Timer:
    """A context manager that records what happened."""

    def __init__(self, log, swallow=()):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, error, traceback):
        self.log.append("exit" if kind is None else kind.__name__)
        return kind is not None and issubclass(kind, tuple(self.swallow))


@contextlib.contextmanager
def _temporarily(settings, **changes):
    before = dict(settings)
    settings.update(changes)
    try:
        yield settings
    finally:
        settings.clear()
        settings.update(before)


@program("context manager", lambda: (randn(3), []))
def timer_class(x, log):
    with Timer(log) as timer:
        y = x * 2
        timer.log.append("inside")
    return y + len(log)


@program("context manager", lambda: (randn(3), {"scale": 1.0}))
def temporary_settings(x, settings):
    with _temporarily(settings, scale=3.0, extra=1) as current:
        y = x * current["scale"] + settings["extra"]
    return y, settings["scale"], "extra" in settings


@program("context manager", lambda: (randn(3), []))
def swallowed_exception(x, log):
    y = x
    with Timer(log, [KeyError]), contextlib.suppress(ZeroDivisionError):
        y = y + 1
        {}["missing"]
        y = y + 100
    return y


@program("isinstance", lambda: ([randn(2), 3, "a", (randn(2), None)],))
def walk_a_structure(value):
    def walk(v):
        if isinstance(v, torch.Tensor):
            return v * 2
        if isinstance(v, (list, tuple)):
            return type(v)(walk(i) for i in v)
        return -v if isinstance(v, int) and not isinstance(v, bool) else v

    return walk(value)


@program("isinstance", lambda: (nn.Linear(2, 2).eval(), randn(2)))
def kinds_of_modules(layer, x):
    return (
        layer(x),
        isinstance(layer, nn.Module),
        issubclass(type(layer), nn.Linear),
        isinstance(x, nn.Parameter),
        isinstance(layer.weight, nn.Parameter),
        type(x) is torch.Tensor,
    )


class Options:
    scale = 2.0

    def __init__(self):
        self.shift = 1.0


@program("hasattr", lambda: (randn(3), Options()))
def optional_attributes(x, options):
    if hasattr(options, "shift"):
        x = x + options.shift
    if hasattr(options, "missing"):
        x = x * 0
    return x * options.scale if hasattr(Options, "scale") else x


@program("getattr", lambda: (randn(3), "softmax", Options()))
def method_by_name(x, name, options):
    y = getattr(x, name)(dim=0)
    return y * getattr(options, "gain", 3.0), getattr(torch, "relu")(x), getattr(options, "shift")


@program("exception caught inside", lambda: (randn(3), {"a": 1.0}))
def missing_key(x, table):
    try:
        return x * table["b"]
    except KeyError as error:
        return x * table["a"], error.args


class ShapeError(ValueError):
    """A shape that doesn't fit."""

    def __init__(self, shape, wanted):
        super().__init__(f"{tuple(shape)} is not {wanted}")
        self.wanted = wanted


def _checked(x, wanted):
    if tuple(x.shape) != wanted:
        raise ShapeError(x.shape, wanted)
    return x


@program("exception caught inside", lambda: (randn(3),))
def own_exception_with_attributes(x):
    try:
        x = _checked(x, (4,))
    except (TypeError, ShapeError) as error:
        return x + error.wanted[0], str(error), isinstance(error, ValueError)
    else:
        return x


@program("exception caught inside", lambda: (randn(3), []))
def finally_runs_in_order(x, log):
    for i in range(3):
        try:
            if i == 1:
                continue
            if i == 2:
                raise RuntimeError("two")
            x = x + i
        except RuntimeError:
            log.append("caught")
            break
        else:
            log.append("fine")
        finally:
            log.append(i)
    return x


@program("exception caught inside", lambda: (randn(3),))
def raise_from_another(x):
    try:
        try:
            {}["k"]
        except KeyError as cause:
            raise ValueError("outer") from cause
    except ValueError as error:
        return x * 2, type(error.__cause__).__name__, error.__cause__.args


@program("exception caught inside", lambda: (randn(3),))
def stop_of_an_iterator(x):
    items, out = iter([x, x * 2]), []
    while True:
        try:
            out.append(next(items))
        except StopIteration:
            return out


@program("enumerate", lambda: (randn(3, 2), {"a": 2.0, "b": 3.0}))
def enumerate_a_dict(x, gains):
    out = []
    for row, (name, gain) in enumerate(gains.items()):
        out.append((name, x[row] * gain))
    return out, list(enumerate("ab", 5))


@program("sorted", lambda: (randn(4), {"w": 3, "b": 1, "k": 2}))
def sort_numbers_and_names(x, sizes):
    largest = sorted(sizes.items(), key=lambda item: item[1], reverse=True)[0]
    return x * largest[1], sorted(sizes), sorted(sizes.values()), sorted("hello")


@program("hasattr", lambda: (randn(2, 3), 3.0))
def duck_typing(x, scale):
    if hasattr(scale, "softmax"):
        return x * scale.softmax(-1)
    return x * (scale.item() if hasattr(scale, "item") else scale)


@program("getattr", lambda: (randn(3), Options()))
def attributes_with_defaults(x, options):
    for name in ("shift", "bias", "scale"):
        x = x + getattr(options, name, 0.5)
    activation = getattr(torch.nn.functional, "gelu")
    return activation(x), getattr(x, "missing", None)


@program("hasattr", lambda: (randn(3), Options()))
def set_it_if_it_is_missing(x, options):
    if not hasattr(options, "buffer"):
        options.buffer = x * 2
    del options.shift
    return options.buffer + 1, hasattr(options, "shift"), hasattr(x, "softmax"), hasattr(3, "real")


@program("zip", lambda: (randn(2),))
def zip_of_unequal_lengths(x):
    try:
        return [a * b for a, b in zip([x, x], [1], strict=True)]
    except ValueError as error:
        return x, str(error)


@program("enumerate", lambda: ({"a": randn(2), "b": randn(2)},))
def enumerate_items(state):
    return [value * i + len(name) for i, (name, value) in enumerate(sorted(state.items()))]


@program("sorted", lambda: ([randn(3), randn(1), randn(2)],))
def sort_by_length(items):
    by_size = sorted(items, key=len)
    return (
        torch.cat(by_size),
        by_size,
        sorted([3, 1, 2], reverse=True),
        [len(t) for t in sorted(items, key=lambda t: -t.numel())],
    )


@program("context manager", lambda: (randn(3), []))
def nested_managers_and_a_stack(x, log):
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(Timer(log))
        stack.callback(log.append, "callback")
        x = x + 1
    with contextlib.nullcontext(x * 2) as y:
        return y


@program("getattr", lambda: (randn(3), Options()))
def setattr_by_name(x, options):
    for name, value in {"a": 1.0, "b": x}.items():
        setattr(options, name, value)
    delattr(options, "a")
    return options.b * operator.attrgetter("shift")(options), sorted(vars(options))
