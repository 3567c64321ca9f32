"""Assertions about tensors, and numbers in them: one graph, and where a check fails what eager does.

PYTEST_DONT_REWRITE: the programs' assertions are Python's own.
"""

from __future__ import annotations

import math
import operator

import pytest
import torch
from tensor_executor import Executor

from intarsia_ir import torch as torch_dialect

X = torch.arange(4.0)


def outcome(call, *args):
    """Return the result or the error, the arguments afterwards, and how far the random generator went."""
    torch.manual_seed(0)
    args = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    try:
        result = call(*args)
    except Exception as error:
        result = f"{type(error).__name__}: {error}"
    return result, args, torch.rand(())


def alike(actual, expected):
    """Compare two outcomes: types, tensors, and what is as it is."""
    assert type(actual) is type(expected)
    if isinstance(expected, (tuple, list)):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected):
            alike(one, other)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(actual, expected, equal_nan=True)
    else:
        assert actual == expected or actual != actual


def check(fn, *args, graphs=1, breaks=0):
    """Compare with eager; returns the captures."""
    executor = Executor()
    alike(outcome(lambda *a: executor.call(fn, *a), *args), outcome(fn, *args))
    captured = [c for c in executor.captures if c.graph_module is not None]
    assert len(captured) == graphs
    found = [b.code for c in executor.captures for b in c.breaks if b.code != "tracer.exception"]
    assert len(found) == breaks, found
    for c in captured:
        torch_dialect.verify(c.graph_module)
    return executor.captures


def assert_all(x):
    assert (x < 3.5).all(), f"too large: {x.max().item()}"
    return x * 2


def raise_if_any(x):
    y = x + 1
    if (y > 4.5).any():
        raise ValueError(f"{y.tolist()} is beyond")
    return y


def either(x):
    if torch.isnan(x).any() or (x < 0).any():
        raise ValueError("bad")
    return x.sqrt()


def within_a_block(x):
    with torch.no_grad():
        assert (x >= 0).all()
    return x * 3


def inlined(x):
    return assert_all(x) + raise_if_any(x)


@pytest.mark.parametrize("fn", [assert_all, raise_if_any, either, within_a_block, inlined])
@pytest.mark.parametrize("x", [X, X * 100, -X, X * math.nan], ids=["holds", "large", "negative", "nan"])
def test_assertions(fn, x):
    check(fn, x)


def test_effects_come_after_checks():
    seen = []

    def f(x):
        seen.append("before")
        assert (x < 3.5).all()
        seen.append("after")
        return x + 1

    check(f, X)
    check(f, X * 9)
    assert seen == ["before", "after"] * 2 + ["before"] * 2


def test_what_writes_its_input_breaks():
    def f(x):
        x.add_(1)
        assert (x < 100).all()
        return x.mul_(2)

    check(f, X, graphs=2, breaks=1)
    check(f, X * 100, graphs=1, breaks=1)


def test_a_write_of_something_new_is_no_effect():
    def f(x):
        y = torch.zeros(4)
        y.add_(x)
        assert (y < 3.5).all()
        return y

    check(f, X)
    check(f, X * 9)


def test_random_numbers_are_drawn_once():
    def f(x):
        y = x + torch.rand(4)
        assert (y < 4).all(), "large"
        return y * torch.rand(4)

    check(f, X)
    check(f, X * 9)


def test_a_check_before_a_break():
    def f(x):
        assert (x < 3.5).all()
        y = x * 2
        if y.sum() > 0:
            return y + 1
        return y - 1

    check(f, X, graphs=2, breaks=1)
    check(f, X * 9, graphs=1, breaks=1)


def test_cells_and_defaults_begin_anew():
    def f(x, *more, scale=2.0, **named):
        def g():
            nonlocal scale
            scale = scale + 1
            return x * scale

        y = g()
        assert (y < 9.5).all(), f"{scale} {more} {named}"
        return g()

    check(f, X)
    check(f, X * 9)


@pytest.mark.parametrize("scale", [1.0, -1.0])
def test_distributions_validate(scale):
    def f(x):
        normal = torch.distributions.Normal(x, scale * (x + 1))
        return normal.log_prob(x), normal.rsample(), torch.distributions.Bernoulli(logits=x).entropy()

    check(f, X)


def holds(x):
    return bool((x > 0).all())


def test_a_truth_that_a_function_returns():
    def f(x):
        if not holds(x):
            raise ValueError("too small")
        return x + 1

    check(f, X)
    with pytest.raises(ValueError, match="too small"):
        Executor().call(f, -X)


@pytest.mark.parametrize("x", [torch.ones(1), torch.zeros(1), torch.tensor([[float("nan")]]), torch.tensor(True)])
def test_truths_stay_open(x):
    def f(x):
        return x + 1, bool(x), not x, not x.any(), [bool(row) for row in x] if x.dim() else operator.not_(bool(x))

    check(f, x)


def test_a_truth_that_branches_break():
    def f(x):
        found = holds(x)
        return x + 1 if found else x - 1

    for x in (X + 1, -X):
        check(f, x, graphs=1, breaks=1)


def test_categorical():
    def f(x):
        found = torch.distributions.Categorical(logits=x)
        return found.entropy(), found.log_prob(torch.tensor(1))

    check(f, X)


# ---- numbers ---------------------------------------------------------------------------------------------------------


def returned(x):
    return x.sum().item(), x[0].item(), [float(v) for v in x], (x > 1)[2].item()


def operand(x, n):
    return x * n.item() + int(n), n.item() * x - float(x.mean())


def whole(x, n):
    return x.int() * n.int().item(), x.long() + n.item(), x.half() * float(x[1])


def arithmetic(x):
    return x.sum().item() * 2 - x[1].item() + 0.1, -x[0].item(), x.max().item() / 3


def kept_before_a_write(x):
    y = x + 1
    n = y[0].item()
    y.add_(5)
    return n, y


def list_of_few(x):
    a, b, c, d = x.tolist()
    return x * a + b, [c, d]


def checked_number(x, n):
    k = n.item()
    torch._check(k >= 0, lambda: "negative")
    assert 0 < k <= 5, f"{k} is out of range"
    return x * k


def checked_float(x):
    y = x.double() / 10
    assert y[1].item() != 0.1 and x[1].item() / 10 >= 0
    return y


NUMBERS = [returned, operand, whole, arithmetic, kept_before_a_write, list_of_few]


@pytest.mark.parametrize("fn", NUMBERS)
def test_numbers_stay_open(fn):
    args = (X, torch.tensor(3)) if fn.__code__.co_argcount == 2 else (X,)
    (captured,) = check(fn, *args)
    assert not captured.breaks


@pytest.mark.parametrize("n", [3, -1, 0, 9])
def test_numbers_that_are_checked(n):
    check(checked_number, X, torch.tensor(n))


def test_a_number_is_compared_in_double_precision():
    def f(x):
        assert x.item() > 0.1, "the float32 next to 0.1 is larger"
        return x + 1

    check(f, torch.tensor(0.1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.uint8, torch.int32, torch.bool])
def test_types_of_numbers(dtype):
    def f(x):
        return x[1].item(), x.new_ones(2), X + 1

    (captured,) = check(f, torch.tensor([0, 1, 2, 3], dtype=dtype))
    assert not captured.breaks


def branches(x, n):
    return x + 1 if n.item() > 2 else x - 1


def loops(x, n):
    for _ in range(n.item()):
        x = x + 1
    return x


def writes_text(x, n):
    return {f"{n.item():d}": x.sum().item()}, x + 1


def identity(x, n):
    return x + 1, (n > 2).item() is True


@pytest.mark.parametrize("fn", [branches, loops, writes_text, identity])
def test_what_must_be_known_breaks_where_it_is_asked_for(fn):
    executor = Executor()
    alike(executor.call(fn, X, torch.tensor(3)), fn(X, torch.tensor(3)))
    (broken, *_) = [b for c in executor.captures for b in c.breaks]
    assert broken.code == "tracer.tensor_value" and "item()" in broken.reason


def test_several_elements_have_no_number():
    def f(x):
        return x + 1, x.item()

    check(f, X, graphs=1, breaks=1)
