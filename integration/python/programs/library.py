"""The standard library around tensors: itertools, heapq, re, random, time, warnings, logging, contextvars."""

from __future__ import annotations

import bisect
import collections
import contextlib
import contextvars
import copy
import functools
import heapq
import itertools
import logging
import math
import operator
import random
import re
import string
import sys
import threading
import time
import types
import typing
import warnings

import torch
from torch import randn

from integration.python.program import made, program

LOG = logging.getLogger("integration.python.programs")
DEPTH = contextvars.ContextVar("depth", default=1)
SETTINGS = types.MappingProxyType({"scale": 2.0, "shift": 1})
NUMBER = re.compile(r"layer\.(\d+)\.(\w+)")
LOCK = threading.Lock()
MAYBE = torch.Tensor | None
# what it answers is kept in the logger from the first time on
LOG.isEnabledFor(logging.DEBUG)


@program("itertools", lambda: (randn(3),))
def groups_of_numbers(x):
    groups = {k: list(g) for k, g in itertools.groupby([1, 1, 2, 3, 3], key=lambda n: n % 2)}
    return x * len(groups), groups


@program("itertools", lambda: (randn(3), [randn(3), randn(3)]))
def pairs_by_tee(x, items):
    a, b = itertools.tee([x, *items])
    next(b)
    return [p + q for p, q in zip(a, b)]


@program("itertools", lambda: (randn(3),))
def orders_of_axes(x):
    y = x.reshape(1, 3, 1)
    return [y.permute(p) for p in itertools.permutations(range(3))], list(itertools.combinations("abc", 2))


@program("itertools", lambda: (randn(3), [randn(3), randn(3)]))
def running_sums(x, items):
    return list(itertools.accumulate([x, *items])), list(itertools.accumulate([1, 2, 3], operator.mul, initial=2))


@program("itertools", lambda: (randn(2, 2),))
def grid_of_places(x):
    return torch.stack([x[i, j] * (i + j) for i, j in itertools.product(range(2), repeat=2)])


@program("itertools", lambda: (randn(3),))
def counted_and_cycled(x):
    out = []
    for n, sign in zip(itertools.count(1, 2), itertools.cycle([1, -1])):
        if n > 7:
            break
        out.append(x * n * sign)
    return out


@program("itertools", lambda: (randn(3),))
def pairs_and_longest(x):
    pairs = [b - a for a, b in itertools.pairwise([1, 4, 9])]
    return x * sum(pairs), list(itertools.zip_longest([1, 2], "abc", fillvalue=0)), list(itertools.repeat(2, 3))


@program("itertools", lambda: (randn(3),))
def starmap_and_takewhile(x):
    powers = list(itertools.starmap(pow, [(2, 1), (2, 2), (2, 3)]))
    kept = list(itertools.takewhile(lambda n: n < 8, powers))
    return x + sum(kept), list(itertools.dropwhile(lambda n: n < 4, powers)), list(itertools.filterfalse(bool, [0, 1]))


@program("heapq", lambda: (randn(4),))
def best_beams(x):
    heap = [(3, "c"), (1, "a"), (2, "b")]
    heapq.heapify(heap)
    heapq.heappush(heap, (0, "z"))
    return x * heapq.heappop(heap)[0] + 1, heapq.nlargest(2, [5, 1, 7]), heap


@program("heapq", lambda: (randn(4),))
def bisected_bins(x):
    edges = [1, 3, 5]
    at = bisect.bisect_left(edges, 3)
    bisect.insort(edges, 4)
    return x[at:], edges, list(heapq.merge([1, 4], [2, 3]))


@program("functools", lambda: (randn(3),))
def sorted_by_a_comparison(x):
    order = sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a))
    return x * order[0], order


@program("functools", lambda: (randn(3), [randn(3), randn(3)]))
def reduced(x, items):
    return functools.reduce(torch.add, items, x), functools.reduce(lambda a, b: a * b, [1, 2, 3])


@functools.lru_cache(maxsize=8)
def angles(n):
    return [math.cos(i / n) for i in range(n)]


@program("functools", lambda: (randn(3),), breaks=("tracer.call",))
def cached_helper(x):
    return x * torch.tensor(angles(3))


@functools.singledispatch
def widened(value):
    return value


@widened.register
def _(value: int):
    return value * 2


@program("functools", lambda: (randn(3),))
def dispatched_on_a_type(x):
    return x * widened(3) + widened(1.5)


@program("regular expressions", lambda: (randn(3), {"layer.0.weight": 1, "layer.12.bias": 2, "head": 3}))
def numbers_in_names(x, names):
    found = {m.group(2): int(m.group(1)) for name in names if (m := NUMBER.fullmatch(name))}
    return x * found["bias"], found


@program("regular expressions", lambda: (randn(3), "model.layers.3.attn"))
def renamed_by_a_pattern(x, name):
    return x + 1, re.sub(r"layers\.(\d+)", r"h.\1", name), re.split(r"\.", name), bool(re.search("attn", name))


@program("random module", lambda: (randn(3),))
def uniform_scale(x):
    random.seed(3)
    return x * random.uniform(0.5, 2.0), random.random() < 2


@program("random module", lambda: (randn(3, 3),))
def augmented(x):
    factor = random.choice([0.5, 1.0, 2.0])
    order = [0, 1, 2]
    random.shuffle(order)
    (shift,) = random.choices([1, 2], weights=[1, 3])
    return x[:, order] * factor + shift + random.triangular(0.0, 1.0), order


@program("random module", lambda: (randn(3, 3),))
def mixed_up(x):
    lam = random.betavariate(0.4, 0.4)
    return lam * x + (1 - lam) * x[random.sample(range(3), 3)], torch.full((2,), lam)


@program("random module", lambda: (randn(6),))
def random_choice(x):
    random.seed(5)
    i = random.randint(0, 5)
    return x[i] + random.choice([1, 2, 3]), random.sample(range(10), 3)


@program("random module", lambda: (randn(3, 4),))
def layer_drop(x):
    random.seed(1)
    for _ in range(3):
        if random.random() > 0.5:
            x = x * 2
    return x


@program("random module", lambda: (randn(4, 2), ["a", "b", "c"]))
def shuffled_by_a_seed(x, names):
    random.seed("epoch 3")
    order = list(range(4))
    random.shuffle(order)
    random.shuffle(names)
    return x[order], names, random.choice(names), random.gauss(0.0, 1.0), random.random()


@program("time", lambda: (randn(3),))
def timed_work(x):
    start = time.perf_counter()
    y = x * 2
    return y, time.perf_counter() - start >= 0


@program("time", lambda: (randn(3),))
def stamped(x):
    stamp = time.time()
    return x + 1, stamp > 0, isinstance(time.monotonic(), float)


@program(
    "warnings and logging",
    lambda: (randn(3),),
    breaks=(
        "tracer.call",
        "tracer.call",
        "tracer.output",
        "tracer.call",
    ),
)
def warned_once(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("an old argument", stacklevel=2)
    return x * 2


def asked():
    """Ask what is logged: a logger remembers the answer until some level changes, which a version relies on."""
    LOG.isEnabledFor(logging.DEBUG)
    return (randn(3),)


@program("warnings and logging", asked)
def logged(x):
    LOG.debug("shape %s", x.shape)
    if LOG.isEnabledFor(logging.DEBUG):
        x = x * 0
    return x + 1


@program(
    "warnings and logging",
    lambda: (randn(3),),
    breaks=(
        "tracer.call",
        "tracer.call",
        "tracer.call",
    ),
)
def warned_by_a_helper(x):
    def old(t):
        warnings.warn("deprecated", DeprecationWarning, stacklevel=2)
        return t + 1

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        y = old(x)
    return y, len(caught)


@program("context variable", lambda: (randn(3),))
def depth_in_a_variable(x):
    token = DEPTH.set(DEPTH.get() + 1)
    try:
        return x * DEPTH.get()
    finally:
        DEPTH.reset(token)


@program(
    "locks",
    lambda: (randn(3),),
    breaks=(
        "tracer.call",
        "tracer.call",
        "tracer.call",
    ),
)
def under_a_global_lock(x):
    with LOCK:
        return x * 2, LOCK.locked()


@program("mapping proxy", lambda: (randn(3),))
def read_only_settings(x):
    return x * SETTINGS["scale"] + SETTINGS.get("shift", 0), "scale" in SETTINGS, list(SETTINGS)


@program("mapping proxy", lambda: (randn(3),))
def proxy_made_inside(x):
    view = types.MappingProxyType({"a": 1})
    try:
        view["a"] = 2
    except TypeError as error:
        return x + view["a"], str(error)
    return x


@program("identity", lambda: (randn(3),), breaks=("tracer.identity",), calls=3, recompiles=2)
def seen_by_id(x):
    seen = {}
    for part in (x, x, x + 1):
        seen[id(part)] = part
    return list(seen.values()), len(seen)


@program("identity", lambda: (randn(3), {"a": randn(2)}), breaks=("tracer.call",))
def copies(x, table):
    shallow, deep = copy.copy(table), copy.deepcopy(table)
    return x + 1, shallow["a"] is table["a"], deep["a"] is table["a"], deep


@program("typing", lambda: (randn(3),))
def cast_and_annotated(x):
    y: torch.Tensor | None = torch.jit.annotate(MAYBE, None)
    z = typing.cast(torch.Tensor, x)
    return z * 2 if y is None else y


@program("typing", lambda: (randn(3),))
def asked_for_a_protocol(x):
    return (
        x * 2,
        isinstance([], collections.abc.Sequence),
        isinstance({}, collections.abc.Mapping),
        issubclass(bool, int),
    )


@program("frames", lambda: (randn(3),))
def name_of_the_function(x):
    return x * 2, sys._getframe().f_code.co_name


@program("frames", lambda: (randn(3),))
def locals_by_name(x):
    scale = 2
    return x * locals()["scale"], sorted(locals())


@program("text", lambda: (randn(3), "a,b,,c"))
def text_methods(x, text):
    parts = [p.strip() for p in text.split(",") if p]
    return (
        x * len(parts),
        "-".join(parts),
        text.partition(","),
        text.upper().center(10, "*"),
        parts[0] in string.ascii_letters,
    )


@program("text", lambda: (randn(3, 2),))
def formats(x):
    return x + 1, f"{x.shape[0]:>4}|{3.14159:.2f}|{'a'!r}", "%d of %s" % (2, "b"), "{0}{k}".format(*[1], k=2)


@made("context manager", lambda: (randn(3),))
def manager_of_a_generator():
    stack = []

    @contextlib.contextmanager
    def pushed(name):
        stack.append(name)
        try:
            yield len(stack)
        finally:
            stack.pop()

    def call(x):
        with pushed("a") as one, pushed("b") as two:
            return x * one + two, list(stack)

    return call


@program("context manager", lambda: (randn(3),))
def suppressed_and_closed(x):
    with contextlib.suppress(KeyError), contextlib.nullcontext(3) as n:
        x = x * n
        {}["missing"]
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: None)
        return x + 1


@program("math", lambda: (randn(3),))
def functions_of_math(x):
    return x * math.prod([1, 2]), math.gcd(12, 18), math.isqrt(17), math.comb(5, 2), math.hypot(3, 4), math.log2(8)


@program("math", lambda: (randn(7),))
def sizes_in_math(x):
    n = x.shape[0]
    return x * math.sqrt(n), math.ceil(n / 2), divmod(n, 3), round(n / 3, 1), math.isclose(n / 7, 1.0)
