"""partial, wraps, closures of all three kinds, generators, comprehensions, decorators, arguments."""

from __future__ import annotations

import functools
import itertools

import torch
from torch import randn

from integration.python.program import made, program


def _scale_and_shift(x, scale, shift=0.0, *, negate=False):
    out = x * scale + shift
    return -out if negate else out


@program("functools.partial", lambda: (randn(3), functools.partial(_scale_and_shift, scale=2.0)))
def partial_as_an_argument(x, step):
    return step(x), step(x, shift=1.0), step.keywords["scale"]


@program("functools.partial", lambda: (randn(3),))
def partial_made_inside(x):
    step = functools.partial(_scale_and_shift, x, 3.0, negate=True)
    return step(), step(2.0), functools.partial(step, shift=1)()


@torch.jit.script
def _scripted_gelu(x):
    return x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))


@torch.jit.script
def _scripted_sum(x, times: int = 2):
    y = torch.zeros_like(x)
    for i in range(times):
        y = y + _scripted_gelu(x) * float(i)
    return y, x.size(-1) // 2


@program("decorator", lambda: (randn(3, 4),))
def scripted_functions(x):
    return _scripted_gelu(x) * 2, _scripted_sum(x), _scripted_sum(x, times=3)


@program("functools.partial", lambda: (randn(3, 4),))
def partials_in_a_pipeline(x):
    stages = [functools.partial(torch.sum, dim=1), functools.partial(torch.mul, other=2)]
    for stage in stages:
        x = stage(x)
    return x


def _doubled(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs) * 2

    return wrapper


@_doubled
def _plus_one(x):
    """Add one."""
    return x + 1


def _with_default(**defaults):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **(defaults | kwargs))

        wrapper.defaults = defaults
        return wrapper

    return decorate


@_with_default(scale=3.0)
def _scaled(x, scale, shift=0.0):
    return x * scale + shift


@program("functools.wraps", lambda: (randn(3),))
def call_a_wrapped_function(x):
    return _plus_one(x), _plus_one.__name__, _plus_one.__wrapped__(x)


@program("functools.wraps", lambda: (randn(3),))
def wrapper_with_attributes(x):
    return _scaled(x), _scaled(x, scale=1.0, shift=2.0), _scaled.defaults["scale"], _scaled.__doc__


@program("decorator", lambda: (randn(3),))
def decorate_inside(x):
    @_doubled
    @_with_default(shift=1.0)
    def step(v, scale=1.0, shift=0.0):
        return v * scale + shift

    return step(x), step(x, shift=0.0)


class _Memo:
    """A decorator that is a class and counts its calls."""

    def __init__(self, function):
        self.function = function
        self.calls = 0

    def __call__(self, *args):
        self.calls += 1
        return self.function(*args)


@made("decorator", lambda: (randn(3),), calls=4, recompiles=1)
def class_as_a_decorator():
    @_Memo
    def half(x):
        return x / 2

    def f(x):
        return half(half(x)), half.calls

    return f


@made("cell made outside", lambda: (randn(3),))
def closure_over_a_tensor_and_a_number():
    weight, bias = torch.ones(3), 2.0

    def f(x):
        return x * weight + bias

    return f


@made("cell made outside", lambda: (randn(3),))
def moving_average_in_a_cell():
    average = torch.zeros(3)

    def f(x):
        nonlocal average
        average = 0.9 * average + 0.1 * x
        return average * 2

    return f


@made("cell made outside", lambda: (randn(3),))
def two_functions_share_a_cell():
    state = torch.zeros(3)

    def write(v):
        nonlocal state
        state = v

    def f(x):
        write(x + 1)
        return state * 2

    return f


@program("cell made and dead inside", lambda: (randn(3),))
def counter_dead_inside(x):
    count = 0

    def step(v):
        nonlocal count
        count += 1
        return v * count

    y = step(step(step(x)))
    return y, count


@program("cell made and dead inside", lambda: (randn(2, 3, 4), 2))
def recursion_by_a_cell(x, depth):
    def tree(v, d):
        return v.sum() if d == 0 else tree(v * 2, d - 1) + tree(v + 1, d - 1)

    return tree(x, depth)


@program("cell made and dead inside", lambda: (randn(3),))
def late_binding_in_a_loop(x):
    late = [lambda v: v * i for i in range(3)]
    early = [lambda v, i=i: v * i for i in range(3)]
    return [f(x) for f in late], [f(x) for f in early]


@program("cell made inside and escaping", lambda: (randn(3),))
def accumulator_escapes(x):
    total = x * 2

    def add(y):
        nonlocal total
        total = total + y
        return total

    add(x)
    return add, add(x)


@program("cell made inside and escaping", lambda: (randn(3), 3))
def make_an_adder(x, n):
    shifted = x + n

    def adder(y, scale=n):
        return (y + shifted) * scale

    return adder


@program("cell made inside and escaping", lambda: (randn(3),))
def getter_and_setter_escape(x):
    value = x

    def get():
        return value

    def put(v):
        nonlocal value
        value = v

    put(x + 1)
    return get, put, get() * 2


def _windows(x, size):
    for start in range(x.shape[0] - size + 1):
        yield x[start : start + size]


def _smooth(parts):
    for part in parts:
        yield part.mean(0)


@program("generator", lambda: (randn(5, 2),))
def generator_pipeline(x):
    return torch.stack(list(_smooth(_windows(x, 3))))


@program("generator", lambda: (randn(3),))
def yield_from_and_a_result(x):
    def inner(v):
        yield v
        yield v + 1
        return "done"

    def outer(v):
        word = yield from inner(v)
        yield v * len(word)

    return list(outer(x)), next((v for v in outer(x) if v is not x), None)


@program("generator", lambda: ([randn(2), randn(2), randn(2)],))
def generator_expressions(items):
    total = sum(item * i for i, item in enumerate(items))
    first = next(item for item in items if item.dim() == 1)
    return total, first, tuple(i + 1 for i in range(3)), max(len(i) for i in items)


@program("comprehension", lambda: (randn(4, 3),))
def comprehensions_of_each_kind(x):
    rows = [row * i for i, row in enumerate(x) if i % 2 == 0]
    by_name = {f"row{i}": row.sum() for i, row in enumerate(x)}
    sizes = {row.shape[0] for row in x}
    return rows, by_name, sizes, [a * 10 + b for a in range(2) for b in range(2) if a != b]


@program("comprehension", lambda: ([[randn(2)], [randn(2), randn(2)]],))
def flatten_nested_lists(nested):
    flat = [item for row in nested for item in row]
    return torch.cat(flat), [[item + 1 for item in row] for row in nested], [(y := i * 2) + y for i in range(2)], y


@program("arguments", lambda: (randn(3), randn(3)), keywords=lambda: {"scale": 2.0, "tag": "t"})
def variadic_arguments(*tensors, scale=1.0, **rest):
    total = sum(tensors) * scale
    return total, len(tensors), rest


@program("arguments", lambda: (randn(3),))
def forward_everything(x):
    def target(a, b=1.0, /, *c, d, e=5.0, **f):
        return a * b + sum(c) + d - e + len(f)

    def forward(*args, **kwargs):
        return target(*args, **kwargs)

    return forward(x, d=1.0), forward(x, 2.0, x, x, d=x, e=0.0, g=1), forward(*(x, 3.0), **{"d": 4.0})


@program("arguments", lambda: (randn(3),))
def default_arguments(x, scale=2.0, bias=torch.ones(3), *, axes=(0,)):
    return x.sum(axes) * scale + bias


@program("generator", lambda: ([randn(2), randn(2)], [randn(2)]))
def chain_and_islice(a, b):
    chained = list(itertools.chain(a, b))
    pairs = [x + y for x, y in itertools.product(a, b)]
    return list(itertools.islice(chained, 1, None)), pairs, list(itertools.accumulate([1, 2, 3]))


@program("generator", lambda: (randn(4),))
def generator_with_send(x):
    def running():
        total, value = 0, None
        while True:
            value = yield total
            if value is None:
                return
            total = total + value

    averager = running()
    next(averager)
    out = [averager.send(v) for v in x]
    averager.close()
    return out


@program("arguments", lambda: (randn(3),))
def wrong_arguments_are_caught(x):
    def two(a, b):
        return a + b

    try:
        return two(x)
    except TypeError as error:
        return x * 2, str(error)
