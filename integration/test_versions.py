"""How many versions a series of calls is compiled into, beside torch.compile: never more, and every result eager's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import intarsia

RAISE = {"on_error": "raise"}
Series = list[tuple[Any, ...]]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    intarsia.reset()
    yield
    intarsia.reset()


def appended_item(x: torch.Tensor, out: list[float]) -> torch.Tensor:
    out.append(x[0, 0].item())
    return x + 1


def appended(x: torch.Tensor, out: list[Any]) -> torch.Tensor:
    out.append(x * 2)
    return x + 1


def three_branches(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        x = x + 1
    else:
        x = x - 1
    if x.mean() > 1:
        x = x * 2
    else:
        x = x / 2
    if x.max() > 3:
        x = x.sin()
    else:
        x = x.cos()
    return x * 3


def ints_of_branches(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        k = 2
    else:
        k = 3
    if x.max() > 1:
        j = 4
    else:
        j = 5
    return x * k + j


def tuple_over_breaks(x: torch.Tensor) -> torch.Tensor:
    parts = iter((x, x + 1, x + 2))
    y = next(parts)
    print(end="")
    y = y * next(parts)
    print(end="")
    return y + next(parts)


def leaves_a_loop(x: torch.Tensor, numbers: tuple[int, ...]) -> torch.Tensor:
    for k in numbers:
        x = x + k
        if x.sum() > 100:
            return x
    return x * 2


class Counter(torch.nn.Module):
    """A module that counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.counter = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.counter += 1
        return x * self.counter


def images(*sizes: int) -> Series:
    return [(torch.randn(n, 4, 6, 6).to(memory_format=torch.channels_last),) for n in sizes]


def growing() -> Series:
    ours: list[Any] = []
    return [(torch.full((2, 2), float(i)), ours) for i in range(10)]


def of_widths(*sizes: int) -> Series:
    return [(torch.ones(2, n), 6) for n in sizes]


def with_numbers(*numbers: float) -> Series:
    return [(torch.ones(2), n) for n in numbers]


WIDTHS = (2, 3, 4, 5, 6, 7, 8)
# name -> what makes the callable, what makes its calls
SERIES: dict[str, tuple[Callable[[], Any], Callable[[], Series]]] = {
    "a list of items": (lambda: appended_item, growing),
    "a list of tensors": (lambda: appended, growing),
    "a counter": (Counter, lambda: [(torch.ones(3),)] * 8),
    "three branches": (lambda: three_branches, lambda: [(torch.randn(4) * s,) for s in (1, 2, 4, 8) for _ in range(6)]),
    "ints set in branches": (
        lambda: ints_of_branches,
        lambda: [(torch.tensor(row),) for row in ([1.0, 1.0], [2.0, 1.0], [-1.0, -1.0], [-9.0, 2.0])] * 2,
    ),
    "a tuple over breaks": (lambda: tuple_over_breaks, lambda: [(torch.ones(3) * i,) for i in range(4)]),
    "a loop that is left": (
        lambda: leaves_a_loop,
        lambda: [(torch.full((3,), s), t) for s, t in ((1.0, (1, 2)), (1.0, (1, 2, 3)), (60.0, (1, 2, 3)))],
    ),
    "an answer about sizes": (
        lambda: lambda x, limit: torch.full((x.shape[0],), x.shape[1] >= limit),
        lambda: of_widths(*WIDTHS),
    ),
    "an answer in another type": (
        lambda: lambda x, limit: torch.full((2, x.shape[1]), fill_value=x.shape[1] == limit, dtype=torch.float64) * 3,
        lambda: of_widths(*WIDTHS),
    ),
    "an index from a size": (
        lambda: lambda a, b: a[b.size(0) - 1] + 1,
        lambda: [(torch.arange(20.0), torch.ones(n)) for n in (2, 3, 5, 7, 9, 4, 1)],
    ),
    "pooled channels-last images": (
        lambda: lambda x: F.adaptive_avg_pool2d(x, 1) * 2,
        lambda: images(2, 3, 4, 5, 7, 1),
    ),
    "means of channels-last images": (
        lambda: lambda x: x.mean((2, 3), keepdim=True) * 2,
        lambda: images(2, 3, 4, 5, 7, 1),
    ),
    "a tensor of a float": (
        lambda: lambda x, k: x + torch.tensor([k, 1.0]),
        lambda: with_numbers(2.5, 3.5, 5.5, 0.0, 1.0, -1.0),
    ),
    "a tensor of nested floats": (
        lambda: lambda x, k: x + torch.tensor([[k, 2], [x.shape[0], k * 2]]),
        lambda: with_numbers(2.5, 3.5, 5.5, 0.0, 1.0, -1.0),
    ),
    "a tensor of ints": (
        lambda: lambda x, k: x + torch.tensor([[k, 2 * k], [1, -k]]),
        lambda: with_numbers(2, 3, 5, 9, 11),
    ),
    "a tensor of items": (
        lambda: lambda x, k: torch.tensor([[x[0].item(), k], [1, x[1].item() * 2]]),
        lambda: [(torch.tensor([i, 2.0 * i]), 3.0) for i in range(6)],
    ),
    "an int in a tensor": (
        lambda: lambda t, x: x * int(t.item()),
        lambda: [(torch.tensor(float(i)), torch.ones(3)) for i in (2, 3, 4, 0, 1)],
    ),
}


def ours(function: Any) -> tuple[Any, Callable[[], int]]:
    return intarsia.compile(function, options=RAISE), lambda: intarsia.stats().graphs


def theirs(function: Any) -> tuple[Any, Callable[[], int]]:
    torch._dynamo.reset()
    graphs: list[Any] = []

    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        graphs.append(module)
        return module.forward

    return torch.compile(function, backend=backend), lambda: len(graphs)


def graphs_of(name: str, compiler: Callable[[Any], tuple[Any, Callable[[], int]]]) -> int:
    """Run a series beside eager, and return the number of graphs."""
    make, calls = SERIES[name]
    torch.manual_seed(0)
    given, eager = calls(), None
    torch.manual_seed(0)
    eager, expected = make(), calls()
    fast, count = compiler(make())
    for arguments, others in zip(given, expected, strict=True):
        torch.testing.assert_close(fast(*arguments), eager(*others))
        torch.testing.assert_close(arguments, others)
    return count()


@pytest.mark.parametrize("name", SERIES)
def test_no_more_versions_than_torch_compiles(name: str) -> None:
    mine = graphs_of(name, ours)
    assert intarsia.stats().fallbacks == 0
    assert mine <= graphs_of(name, theirs)


def run(function: Any, fast: Any, *arguments: Any) -> None:
    """Compare a call with eager: values to the last bit, types, strides."""
    got, expected = fast(*arguments), function(*arguments)
    torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
    pairs = zip(*[part if isinstance(part, tuple) else (part,) for part in (got, expected)], strict=True)
    assert all(a.stride() == b.stride() and a.requires_grad == b.requires_grad for a, b in pairs)


def signed_zeros(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        z = 0.0
    else:
        z = -0.0
    print(end="")
    return torch.copysign(x, torch.full((2,), z))


def maybe_bound(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        y = x + 1
    print(end="")
    return x * 2 if x.max() < 0 else y


def makes_functions(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        n = x + 1
    else:
        n = x - 1

    def add(y: torch.Tensor) -> torch.Tensor:
        return y + n

    print(end="")
    return add(x) * 2


def under_grad_modes(x: torch.Tensor) -> torch.Tensor:
    with torch.set_grad_enabled(bool(x.sum() > 0)):
        print(end="")
        return x * x


@pytest.mark.parametrize("function", [signed_zeros, maybe_bound, makes_functions, under_grad_modes])
def test_the_rest_after_a_break_is_right_whichever_way_a_call_came(function: Any) -> None:
    fast = intarsia.compile(function, options=RAISE)
    rows = [[1.0, 2.0], [-1.0, -2.0], [-9.0, 2.0], [3.0, 1.0], [-5.0, -6.0], [-9.0, 2.0]]
    for requires_grad in (False, True):
        for row in rows:
            x = torch.tensor(row, requires_grad=requires_grad)
            try:
                expected = function(x)
            except UnboundLocalError as error:
                with pytest.raises(UnboundLocalError, match=str(error)):
                    fast(x)
                continue
            got = fast(x)
            assert torch.equal(got, expected) and torch.equal(got.signbit(), expected.signbit())
            assert got.requires_grad == expected.requires_grad


FILLED = {
    "truths": lambda x: torch.full((x.shape[0],), x.shape[1] >= 3),
    "of another type": lambda x: torch.full((3,), x.shape[1] < x.shape[0], dtype=torch.int64, device="cpu") * 5,
    "twice": lambda x: (torch.full((2,), x.shape[0] == 2), torch.full((2,), x.shape[0] == 2)),
    "and asked": lambda x: torch.full((2,), x.shape[0] > 2) if x.shape[0] > 2 else x * 1,
}


@pytest.mark.parametrize("name", FILLED)
@pytest.mark.parametrize("dynamic", [None, True])
def test_answers_about_sizes_fill_tensors(name: str, dynamic: bool | None) -> None:
    fast = intarsia.compile(FILLED[name], dynamic=dynamic, options={**RAISE, "recompile_limit": 12})
    for shape in [(2, 2), (3, 4), (5, 3), (2, 7), (0, 3), (3, 0), (1, 1), (1, 4), (4, 1), (2, 2), (6, 3)]:
        run(FILLED[name], fast, torch.randn(shape))


REFUSED = {
    "filled": lambda x, k: torch.empty(2).fill_(k),
    "filled in half": lambda x, k: torch.empty(2, dtype=torch.float16).fill_(k),
    "between": lambda x, k: torch.lerp(x, x + 1, k),
    "scaled": lambda x, k: torch.add(x, x, alpha=k),
    "scaled product": lambda x, k: torch.addcmul(x, x, x, value=k),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_number_that_eager_refuses_is_no_infinity(name: str) -> None:
    function = REFUSED[name]
    fast = intarsia.compile(function, options={"recompile_limit": 12})
    for number in (0.5, -0.25, 1e300, -1e300, float("inf"), 0.125):
        outcomes = []
        for call in (fast, function):
            try:
                outcomes.append(str(call(torch.ones(2), number)))
            except RuntimeError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


MADE = {
    "of a number": lambda x, k: torch.tensor(k) * x,
    "of a row": lambda x, k: torch.tensor([k, 2]),
    "of rows": lambda x, k: torch.tensor([[k, 1], [x.shape[0], -k]]),
    "in double": lambda x, k: torch.tensor((k, 2.5), dtype=torch.float64),
    "in half": lambda x, k: torch.tensor([k, 1.0], dtype=torch.float16),
    "twice": lambda x, k: (torch.tensor(k).add_(1), torch.tensor(k)),
    "beside a truth": lambda x, k: torch.tensor([k, True]),
    "of items": lambda x, k: torch.tensor([x[0].item(), k]),
    "here": lambda x, k: torch.as_tensor([k, 1], device="cpu"),
}
FLOATS = (2.5, 3.5, 0.1, 0.0, -0.0, 1.0, -1.0, float("inf"), float("nan"), 1e300)
INTS = (2, 3, 16777217, 0, 1, -1, -7, (1 << 53) + 1)


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("numbers", [FLOATS, INTS], ids=["floats", "ints"])
@pytest.mark.parametrize("default", [torch.float32, torch.float64])
def test_tensors_of_numbers_are_eagers(name: str, numbers: tuple[float, ...], default: torch.dtype) -> None:
    function = MADE[name]
    fast = intarsia.compile(function, options={**RAISE, "recompile_limit": 12})
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        for i, k in enumerate(numbers):
            try:
                function(torch.arange(2.0) + i, k)
            except (OverflowError, RuntimeError) as error:
                with pytest.raises(type(error)):
                    fast(torch.arange(2.0) + i, k)
                continue
            run(function, fast, torch.arange(2.0) + i, k)
    finally:
        torch.set_default_dtype(before)
    assert intarsia.stats().fallbacks == 0


DIVIDED = {
    "true": lambda x, k: x * (6 / (k - 2)),
    "floor": lambda x, k: x * (6 // (k - 2)),
    "remainder": lambda x, k: x * (7 % (k - 2)),
    "by a size": lambda x, k: x * (6 // (x.shape[0] - 3)) + (7 / (x.shape[0] - 3)),
}


@pytest.mark.parametrize("name", DIVIDED)
def test_a_divisor_that_may_be_zero_is_one_version_while_it_is_positive(name: str) -> None:
    fast = intarsia.compile(DIVIDED[name], options=RAISE)
    for k in (5, 6, 7, 8, 3, 11):
        run(DIVIDED[name], fast, torch.ones(k + 1), k)
    assert intarsia.stats().graphs == 2
    with pytest.raises(ZeroDivisionError):
        fast(torch.ones(3), 2)
    for k in (1, 0, 9):
        run(DIVIDED[name], fast, torch.ones(k + 1), k)
