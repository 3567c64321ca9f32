"""Floats that change from call to call: inputs of the graph, with the values and dtypes that Python numbers give."""

import math
import operator
import types

import pytest
import torch

from intarsia_ir.records import ArgumentSource, AttributeSource, CellSource, GlobalSource, GuardKind, Role, Symbolic
from intarsia_pyeval import link
from intarsia_tensorcapture import capture

LR = ArgumentSource("lr")
rate = 0.25


def compiled(f, args, *sources):
    """Return the capture, and `f` by it, with floats at `sources` open."""
    found = capture(f, args, dynamic=Symbolic(numbers=frozenset(sources or (LR,))), fullgraph=True)
    code = link(found.code, dict.fromkeys(found.code.holes, found.graph_module))
    return found, types.FunctionType(code, f.__globals__, f.__name__, None, f.__closure__)


def relied_on(found):
    sources = [g.source for g in found.guards if g.kind is GuardKind.CONSTANT]
    return [source for source in sources if not isinstance(source, AttributeSource)]  # not the level of forward AD


def check(f, x, first=0.1, second=0.7, arg=None):
    """The capture for one float is right for another, and equal to eager to the last bit."""
    found, g = compiled(f, (x.clone(), first))
    assert LR not in relied_on(found)
    assert any(spec.role is Role.NUMBER for spec in found.signature.inputs)
    for number in (first, second, -0.0, float("inf"), 1e-320):
        mine, theirs = x.clone(), x.clone()
        actual, expected = g(mine, number), f(theirs, number)
        torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)


OPERATORS = {
    "mul": lambda x, lr: x * lr,
    "rmul": lambda x, lr: lr * x,
    "add": lambda x, lr: x + lr,
    "radd": lambda x, lr: lr + x,
    "sub": lambda x, lr: x - lr,
    "rsub": lambda x, lr: lr - x,
    "div": lambda x, lr: x / lr,
    "rdiv": lambda x, lr: lr / x,
    "torch.mul": lambda x, lr: torch.mul(x, lr),
    "method": lambda x, lr: x.add(lr).sub(lr).mul(lr).div(lr),
    "lt": lambda x, lr: x < lr,
    "rlt": lambda x, lr: lr < x,
    "eq": lambda x, lr: (x == lr, lr != x),
}
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.complex64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_promote_as_python_numbers_do(name, dtype):
    if dtype is torch.complex64 and name in ("lt", "rlt"):
        return
    if dtype is torch.bool and name in ("sub", "rsub", "method"):
        dtype = torch.uint8
    f = OPERATORS[name]
    x = torch.tensor([[0.0, 1.0, -3.0], [7.0, 0.1, 100.0]]).to(dtype)
    check(f, x)
    if dtype not in (torch.bfloat16, torch.float16):
        check(f, x[1, 1])


@pytest.mark.parametrize(
    "f", [lambda x, lr: x.mul_(lr), lambda x, lr: x.add_(x * 2).sub_(lr), lambda x, lr: x.fill_(lr)]
)
def test_in_place(f):
    check(f, torch.randn(3, 4))


def test_arithmetic_outside_of_the_graph_is_pythons():
    def f(x, lr):
        decayed = -lr * 0.3 + 2 - lr / 3
        return x * decayed, decayed, lr * 2, float(lr)

    check(f, torch.randn(5))


def test_steps_of_optimizers():
    def sgd(p, lr):
        g = p * 2
        p.add_(g, alpha=-lr)
        return torch.sub(p, g, alpha=lr), p.addcmul_(g, g, value=lr), p.addcdiv(g, g + 1, value=-lr)

    x = torch.randn(6)
    found, g = compiled(sgd, (x.clone(), 0.1))
    assert LR not in relied_on(found)
    for lr in (0.1, 0.5):
        mine, theirs = x.clone(), x.clone()
        torch.testing.assert_close(g(mine, lr), sgd(theirs, lr))
        torch.testing.assert_close(mine, theirs)


def test_attributes_globals_and_cells():
    class Settings:
        lr = None

    settings = Settings()
    settings.lr = 0.5
    factor = 0.5

    def f(x, s):
        s.lr = s.lr * 0.5
        return x * s.lr * rate * factor

    places = AttributeSource(ArgumentSource("s"), "lr"), GlobalSource("rate"), CellSource("factor")
    found, g = compiled(f, (torch.ones(2), settings), *places)
    assert not set(places) & set(relied_on(found))
    assert settings.lr == 0.5
    x = torch.randn(2)
    for _ in range(3):
        assert torch.equal(g(x, settings), x * settings.lr * rate * factor)
    assert settings.lr == 0.5**4


@pytest.mark.parametrize(
    "f",
    [
        lambda x, lr: x * 2**lr,
        lambda x, lr: x * round(lr),
        lambda x, lr: x.clamp(max=lr),
        lambda x, lr: torch.nn.functional.leaky_relu(x, lr),
        lambda x, lr: (x + 1, len(f"{lr:.3f}" + str(lr)), {lr: 1}[lr]),
        lambda x, lr: x**lr,
        lambda x, lr: (x + 1, max(lr, 0.5), abs(lr), int(lr), lr * 2 == 0.5),
    ],
)
def test_whatever_needs_the_number_relies_on_it(f):
    x = torch.rand(3)
    found, g = compiled(f, (x, 0.75))
    assert relied_on(found) == [LR]
    torch.testing.assert_close(g(x, 0.75), f(x, 0.75), rtol=0, atol=0)


@pytest.mark.parametrize(
    "f, same, other",
    [
        (lambda x, lr: x * lr if lr > 0 else x, 0.1, -0.1),
        (lambda x, lr: x * lr if lr else x, -3.0, 0.0),
        (lambda x, lr: x * lr if lr != 0 else x, 7.0, -0.0),
        (lambda x, lr: x * lr if not lr <= 1 and lr < 10 else x, 2.0, 11.0),
        (lambda x, lr: x * lr if lr == 0.75 else x - lr, 0.75, 0.5),
    ],
)
def test_a_comparison_relies_on_its_answer(f, same, other):
    x = torch.rand(3)
    now = 1.5 if same == 2.0 else 0.75
    found, g = compiled(f, (x, now))
    assert relied_on(found) == []
    rows = [
        (record.op, record.number, record.expected) for record in found.guards if record.kind is GuardKind.COMPARISON
    ]
    assert rows and all(COMPARISONS[op](same, number) is holds for op, number, holds in rows)
    assert not all(COMPARISONS[op](other, number) is holds for op, number, holds in rows)
    for number in (now, same):
        torch.testing.assert_close(g(x, number), f(x, number), rtol=0, atol=0)


COMPARISONS = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def test_without_being_asked_a_float_is_a_constant():
    found = capture(lambda x, lr: x * lr, (torch.ones(2), 0.5))
    assert relied_on(found) == [LR]
    found = capture(lambda x, lr: x * lr, (torch.ones(2), 0.5), dynamic=True)
    assert relied_on(found) == []


# -- ints that change, and what is computed from them ----------------------------------------------------------------

N = ArgumentSource("n")
STEPS = {
    "power": lambda n: (n**-0.5, n**0.5, 0.9**n, 1 / (1 - 0.9**n), pow(n, 0.25)),
    "functions": lambda n: (math.sqrt(n), math.cos(n / 10), math.sin(n), math.exp(-n), math.log(n), math.tanh(n)),
    "rounding": lambda n: (math.floor(n / 3), math.ceil(n / 7), math.trunc(n / 3), int(n / 2.5), round(n / 3, 1)),
    "bits": lambda n: (n & 3, n & 5, n | 8, n ^ 21, n << 3, n >> 2, round(n / 3)),
    "texts": lambda n: (f"{n**0.5:.2f}|{n}", "%5.1f" % (n / 3), str(n), "-".join([f"{n:>4}", "a"])),
    "order": lambda n: (min(1.0, n / 10), max(n**0.5, 3.0), abs(0.5 - n * 0.1), float(n) - 0.5, -(n**0.5)),
}


@pytest.mark.parametrize("name", STEPS)
def test_ints_stay_open_in_what_cannot_fail(name):
    """Results are Python's own to the last bit, and each lies within the bounds that were told of it."""
    body = STEPS[name]
    found, g = compiled(lambda x, n: (x + 1, body(n)), (torch.ones(2), 6), N)
    assert N not in relied_on(found) and not [f for f in found.facts.facts if "==" in f.relation]
    for n in (2, 3, 7, 40, 1000, 123456789):
        actual = g(torch.ones(2), n)[1]
        assert list(map(repr, actual)) == list(map(repr, body(n)))


@pytest.mark.parametrize(
    "f",
    [
        lambda n: 1 / (n**0.5 - 3),  # zero below the line at 9
        lambda n: 1.5**n,  # overflows
        lambda n: n**n,
        lambda n: 5**n,
        lambda n: math.sqrt(n**0.5 - 2),
        lambda n: math.log(n**0.5 - 2),
        lambda n: math.exp(n * 0.5),
        lambda n: (1, 2, 3)[(n | 4) & 1],
        lambda n: f"{n**0.5:.2f}" + f"{n:c}",  # no character has every number
        lambda n: 1 if n**0.5 > 2 else 0,
    ],
)
def test_what_may_fail_relies_on_the_int(f):
    found, g = compiled(lambda x, n: (x + 1, f(n)), (torch.ones(2), 6), N)
    assert g(torch.ones(2), 6)[1] == f(6)
    assert [fact for fact in found.facts.facts if "==" in fact.relation]


def test_bounds_answer_comparisons():
    def f(x, n):
        rate = 1 / n
        return x * (rate if 0 < n**-0.5 <= 0.71 and (n & 5) >= 0 else -rate)

    found, g = compiled(f, (torch.ones(2), 6), N)
    assert not [fact for fact in found.facts.facts if "==" in fact.relation]
    assert torch.equal(g(torch.ones(2), 4), f(torch.ones(2), 4))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_open_ints_promote_as_python_ints_do(dtype):
    def f(x, n):
        bits = n | 8
        return x * bits, bits + x, x.to(torch.int32) - bits, x.sum() * bits, x == bits, bits / (x + 1)

    x = torch.tensor([0.0, 1.0, 3.0]).to(dtype)
    _, g = compiled(f, (x, 6), N)
    for actual, expected in zip(g(x, 6), f(x, 6), strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def test_a_number_divided_by_an_open_float_relies_on_it_being_no_zero():
    def f(x, lr):
        return x * (1 / lr) - 3.0 / lr

    x = torch.rand(3)
    found, g = compiled(f, (x, 0.75))
    assert relied_on(found) == []
    assert (GuardKind.COMPARISON, LR, ("!=", 0.0, True)) in {
        (r.kind, r.source, (r.op, r.number, r.expected)) for r in found.guards if r.kind is GuardKind.COMPARISON
    }
    for number in (0.1, -2.0, float("inf"), 1e-30):
        assert torch.equal(g(x, number), f(x, number))


@pytest.mark.parametrize("training", [True, False])
def test_a_momentum_stays_open(training):
    def f(x, mean, var, lr):
        return torch.nn.functional.batch_norm(x, mean, var, training=training, momentum=lr)

    x = torch.rand(3, 4)
    found, g = compiled(f, (x, torch.zeros(4), torch.ones(4), 0.75))
    assert LR not in relied_on(found)
    for number in (0.1, 0.0, 1.0):
        (mine, theirs) = [
            [torch.rand(4, generator=torch.Generator().manual_seed(1)) for _ in range(2)] for _ in range(2)
        ]
        torch.testing.assert_close(g(x, *mine, number), f(x, *theirs, number))
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=0)
