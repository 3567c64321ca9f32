"""Which guard makes a call compile anew, in words: what it held, what it is now, the user's line, what to do.

The kinds of guards are met as programs meet them, through the whole pipeline. The logger `intarsia.frames` tells what
`explain` shows.
"""

import copy
import logging
import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import nn

import intarsia
from intarsia_dispatch import FallbackWarning

OPTIONS = {"on_error": "raise"}


class Box:
    """An object of the user."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


box = Box(n="one", inner=Box(k=1), items=[1, 2], table={"a": 1, "b": 2})


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    vars(box).clear()
    vars(box).update(n="one", inner=Box(k=1), items=[1, 2], table={"a": 1, "b": 2}, scale=math.sqrt)
    intarsia.reset()
    yield
    intarsia.reset()


def reads_constant(x: torch.Tensor) -> torch.Tensor:
    return x + len(box.n)


def reads_list(x: torch.Tensor) -> torch.Tensor:
    return x + sum(box.items)


def reads_dict(x: torch.Tensor) -> torch.Tensor:
    for name in box.table:
        x = x + box.table[name]
    return x


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def triple(x: torch.Tensor) -> torch.Tensor:
    return x * 3


def calls_function(x: torch.Tensor) -> torch.Tensor:
    return box.function(x)


def asks_attribute(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if hasattr(box, "extra") else x - 1


def plain(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


Change = Callable[[], Any]
ROWS: dict[str, tuple[Callable[..., Any], Change, Callable[[], AbstractContextManager[Any]], str]] = {
    "constant": (reads_constant, lambda: setattr(box, "n", "two!"), nullcontext, r"\.n was 'one', now it is 'two!'"),
    "list": (
        reads_list,
        lambda: box.items.append(3),
        nullcontext,
        r"items was of length 2, now it is of length 3",
    ),
    "keys": (
        reads_dict,
        lambda: box.table.update(a=box.table.pop("a")),
        nullcontext,
        r"table was with keys",
    ),
    "attribute": (asks_attribute, lambda: setattr(box, "extra", 1), nullcontext, r"without .*extra.*, now it is with"),
    "grad mode": (plain, lambda: None, torch.no_grad, r"grad mode was True, now it is False"),
    "inference mode": (plain, lambda: None, torch.inference_mode, r"mode was (True|False), now it is"),
    "autocast": (plain, lambda: None, lambda: torch.autocast("cpu", torch.bfloat16), r"autocast was .*False.*True"),
}


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.getMessage().startswith("recompiled")]


@pytest.mark.parametrize("name", ROWS)
def test_a_recompilation_names_its_guard(name: str, caplog: pytest.LogCaptureFixture) -> None:
    function, change, scope, pattern = ROWS[name]
    fast = intarsia.compile(function, backend="eager", options=OPTIONS)
    x = torch.ones(3)
    assert torch.equal(fast(x), function(x)) and torch.equal(fast(x), function(x))
    assert intarsia.stats().frames_compiled == 1
    change()
    with caplog.at_level(logging.INFO, "intarsia.frames"), scope():
        assert torch.equal(fast(x), function(x))
    (text,) = messages(caplog)
    assert re.search(pattern, text), text
    assert "remedy: " in text
    if name in ("constant", "list", "keys", "attribute"):
        # the user's line that relied on it
        assert re.search(rf"at .*test_recompiles\.py:\d+ in {function.__name__}", text), text
    assert intarsia.stats().recompiles == 1 and intarsia.stats().fallbacks == 0


@pytest.mark.parametrize(
    ("other", "pattern"),
    [
        (torch.ones(3, dtype=torch.float64), r"x was dtype torch.float32, now it is dtype torch.float64"),
        (torch.ones(6)[::2], r"x was strides \(1,\), now it is strides \(2,\)"),
        (torch.ones(1, 3), r"x was .*shape \(3,\).* now it is .*shape \(1, 3\)"),
        (torch.ones(3).requires_grad_(), r"x was .*requires_grad False.* now it is .*requires_grad True"),
        (torch.nn.Parameter(torch.ones(3), requires_grad=False), r"x was .*Tensor, now it is .*Parameter"),
    ],
    ids=["dtype", "strides", "rank", "requires_grad", "class"],
)
def test_a_changed_tensor_is_described(other: torch.Tensor, pattern: str, caplog: pytest.LogCaptureFixture) -> None:
    fast = intarsia.compile(plain, backend="eager", options=OPTIONS)
    with torch.no_grad(), caplog.at_level(logging.INFO, "intarsia.frames"):
        fast(torch.ones(3))
        torch.testing.assert_close(fast(other), plain(other))
    (text,) = messages(caplog)
    assert re.search(pattern, text), text
    assert re.search(r"at .*test_recompiles\.py:\d+ in plain", text) and "remedy: " in text


def test_another_function_is_named(caplog: pytest.LogCaptureFixture) -> None:
    box.function = double
    fast = intarsia.compile(calls_function, backend="eager", options=OPTIONS)
    x = torch.ones(3)
    assert torch.equal(fast(x), x * 2)
    box.function = triple
    with caplog.at_level(logging.INFO, "intarsia.frames"):
        assert torch.equal(fast(x), x * 3)
    (text,) = messages(caplog)
    assert "box" in text and "function" in text and "remedy: create" in text


def test_explain_shows_the_guard_that_failed() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return run(x) + run(x.double()).float()

    @torch.compiler.disable(recursive=False)  # what it calls is a frame of its own, twice
    def run(x: torch.Tensor) -> torch.Tensor:
        return plain(x)

    explanation = intarsia.explain(program, backend="eager")(torch.ones(3))
    (reason,) = explanation.recompiles
    assert "x was dtype torch.float32, now it is dtype torch.float64" in reason
    assert "float64" in str(explanation)


def test_a_text_that_is_only_printed_compiles_the_rest_once(capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: torch.Tensor, tag: str) -> torch.Tensor:
        print("step", tag)
        return (x * 2).sin()

    fast = intarsia.compile(program, backend="eager", options=OPTIONS)
    x = torch.ones(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        for i in range(20):
            assert torch.equal(fast(x, f"t{i}"), (x * 2).sin())
    assert capsys.readouterr().out == "".join(f"step t{i}\n" for i in range(20))
    assert intarsia.stats().graphs == 1 and intarsia.stats().frames_eager == 0


def test_a_function_without_tensors_is_given_up_without_a_word() -> None:
    def program(key: str, cache: dict[str, int]) -> tuple[str, int]:
        cache[key] = cache.get(key, 0) + 1
        return key.upper(), len(cache)

    fast, cache = intarsia.compile(program, options=OPTIONS), {}
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        assert [fast(f"k{i}", cache) for i in range(30)] == [(f"K{i}", i + 1) for i in range(30)]
    assert intarsia.stats().frames_compiled == 0 and intarsia.stats().frames_eager == 0


@pytest.mark.parametrize("policy", [{"options": OPTIONS}, {"fullgraph": True}])
def test_too_many_versions_are_an_error_where_eager_is_none(policy: dict[str, Any]) -> None:
    fast = intarsia.compile(reads_constant, backend="eager", **policy)
    x = torch.ones(3)
    for i in range(8):
        box.n = "y" * (i + 1)
        fast(x)
    box.n = "other"
    for _ in range(2):
        with pytest.raises(intarsia.UnsupportedError, match="compiled 8 times"):
            fast(x)
    box.n = "yyy"
    assert torch.equal(fast(x), reads_constant(x))


def test_after_eight_versions_one_warning_names_the_cause_and_eager_runs() -> None:
    fast = intarsia.compile(reads_constant, backend="eager")
    x = torch.ones(3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(14):
            box.n = "x" * (i + 1)
            assert torch.equal(fast(x), reads_constant(x))
    (warning,) = [w for w in caught if issubclass(w.category, FallbackWarning)]
    text = str(warning.message)
    assert "compiled 8 times" in text and "recompile_limit" in text
    assert re.search(r"\.n was 'xxxxxxxx', now it is 'xxxxxxxxx'", text)
    assert re.search(r"at .*test_recompiles\.py:\d+ in reads_constant", text) and "remedy: keep" in text
    assert warning.filename == __file__
    stats = intarsia.stats()
    assert (stats.frames_compiled, stats.recompiles, stats.frames_eager, stats.fallbacks) == (8, 7, 1, 0)
    # the versions that are there still run
    box.n = "xxx"
    assert torch.equal(fast(x), reads_constant(x)) and intarsia.stats() == stats


def test_versions_that_fit_in_turns_are_found_without_compiling_again() -> None:
    fast = intarsia.compile(plain, backend="eager", options=OPTIONS, dynamic=False)
    inputs = [torch.randn(n) for n in (2, 3, 4, 5)]
    for x in inputs * 5:
        torch.testing.assert_close(fast(x), plain(x))
    assert intarsia.stats().frames_compiled == 4 and intarsia.stats().fallbacks == 0


class Recorder(torch.nn.Module):
    """A module that keeps a list of what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        self.seen.append(y)
        self.seen += [x.shape[0]]
        return y + 1


def test_a_list_that_is_only_appended_to_grows_without_compiling_anew() -> None:
    ours, eager = Recorder(), Recorder()
    fast = intarsia.compile(ours, options=OPTIONS)
    for step in range(20):
        x = torch.full((3,), float(step))
        assert torch.equal(fast(x), eager(x))
        if step == 15:
            ours.seen.clear(), eager.seen.clear()
    torch.testing.assert_close(ours.seen, eager.seen)
    assert len(ours.seen) == 8 and intarsia.stats().graphs == 1


def test_hooks_that_append_compile_once() -> None:
    layer, seen = torch.nn.Linear(3, 3), []
    layer.register_forward_hook(lambda module, args, result: seen.append(result))
    fast = intarsia.compile(layer, options=OPTIONS)
    results = [fast(torch.full((2, 3), float(i))) for i in range(12)]
    assert len(seen) == 12 and all(a is b for a, b in zip(seen, results, strict=True))
    assert intarsia.stats().graphs == 1


def test_a_list_of_items_is_filled_by_one_version() -> None:
    def function(x: torch.Tensor, out: list[float]) -> torch.Tensor:
        out.append(x[0, 0].item())
        return x + 1

    fast, ours = intarsia.compile(function, options=OPTIONS), []
    for i in range(12):
        x = torch.full((2, 2), float(i))
        assert torch.equal(fast(x, ours), x + 1)
    assert ours == [float(i) for i in range(12)] and intarsia.stats().graphs == 1


def reads_after(x: torch.Tensor, out: list[Any]) -> torch.Tensor:
    out.append(x)
    return out[0] + len(out)


def two_lists(x: torch.Tensor, a: list[Any], b: list[Any]) -> torch.Tensor:
    a.append(x)
    b.append(x + 1)
    return x + 2 if a is b else x + 3


def test_a_list_that_is_looked_at_is_seen_as_it_is() -> None:
    fast, n = intarsia.compile(reads_after, options=OPTIONS), [0, 1, 2, 5, 2, 0]
    for k in n:
        x, ours = torch.full((2,), float(k)), [torch.full((2,), 7.0) for _ in range(k)]
        eager = list(ours)
        assert torch.equal(fast(x, ours), reads_after(x, eager)) and len(ours) == len(eager) == k + 1
        torch.testing.assert_close(ours, eager)


def test_lists_that_are_one_list_are_seen_as_one() -> None:
    fast, x = intarsia.compile(two_lists, options=OPTIONS), torch.ones(2)
    for same in (False, True, False, True):
        for k in (0, 1, 4):
            ours, eager = [[[x] * k for _ in range(2)] for _ in range(2)]
            if same:
                ours[1], eager[1] = ours[0], eager[0]
            assert torch.equal(fast(x, *ours), two_lists(x, *eager))
            torch.testing.assert_close(ours, eager)
    assert intarsia.stats().graphs == 2


@pytest.mark.parametrize("make", [
    lambda: torch.nn.BatchNorm1d(4, momentum=None),
    lambda: torch.nn.BatchNorm2d(4, momentum=None, affine=False),
    lambda: torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4, momentum=None), torch.nn.ReLU()),
], ids=["1d", "2d", "model"])  # fmt: skip
def test_a_momentum_counted_from_batches_is_compiled_twice(make):
    torch.manual_seed(0)
    ours = make()
    eager = copy.deepcopy(ours)
    fast = intarsia.compile(ours, options={"on_error": "raise"})
    shape = (3, 4, 2, 2) if isinstance(ours, torch.nn.BatchNorm2d) else (3, 4)
    for step in range(12):
        x = torch.randn(shape)
        given, expected = x.clone().requires_grad_(), x.clone().requires_grad_()
        result, wanted = fast(given), eager(expected)
        torch.testing.assert_close(result, wanted)
        result.square().sum().backward()
        wanted.square().sum().backward()
        torch.testing.assert_close(given.grad, expected.grad)
        if step == 2:
            graphs = intarsia.stats().graphs
    torch.testing.assert_close(ours.state_dict(), eager.state_dict())
    assert intarsia.stats().graphs == graphs and intarsia.stats().fallbacks == 0
    fast.eval(), eager.eval()
    torch.testing.assert_close(fast(x), eager(x))


@pytest.mark.parametrize("name", ["batch_norm", "instance_norm"])
def test_a_momentum_that_changes_is_no_constant(name):
    function = getattr(torch.nn.functional, name)

    def f(x, mean, var, momentum, use):
        return function(x, mean, var, None, None, use, momentum=1.0 / momentum)

    fast = intarsia.compile(f, options={"on_error": "raise"})
    ours, eager = [[torch.zeros(4), torch.ones(4)] for _ in range(2)]
    for use in (True, False):
        intarsia.reset()
        for momentum in (1.0, 2.0, 3.0, 7.0, 11.0):
            x = torch.randn(3, 4, 5)
            torch.testing.assert_close(fast(x, *ours, momentum, use), f(x, *eager, momentum, use))
        torch.testing.assert_close(ours, eager)
        assert intarsia.stats().graphs == 2 and intarsia.stats().fallbacks == 0
    with pytest.raises(ZeroDivisionError):
        fast(x, *ours, 0.0, True)


class Counted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.counter = 0

    def forward(self, x: torch.Tensor, k: int) -> torch.Tensor:
        self.counter += 1
        return x * 2


def last_by_another(x: torch.Tensor, k: int) -> torch.Tensor:
    return x[torch.zeros(k).size(0) - 1] * 2


def of_another(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return x[other.size(0) - 1] * 2


def made_of_an_int(x: torch.Tensor, k: int) -> torch.Tensor:
    return x + torch.tensor([k])


def item_in_a_list(x: torch.Tensor, k: int) -> Any:
    out = []
    out.append(x[0, 0].item())
    return x * 2, out


def filled_with_a_float(x: torch.Tensor, k: int) -> torch.Tensor:
    return x + torch.full((3,), k * 0.25)


def three_branches(x: torch.Tensor, k: int) -> torch.Tensor:
    x = x + k % 2 if x.sum() > 0 else x - 1
    x = x * 2 if x.mean() > 0 else x * 3
    return x.relu() if x.max() > 1 else x.neg()


@pytest.mark.parametrize(
    ("make", "most"),
    [
        (lambda: Counted(), 3),
        (lambda: last_by_another, 2),
        (lambda: lambda x, k: of_another(x, torch.ones(k)), 2),
        (lambda: made_of_an_int, 2),
        (lambda: item_in_a_list, 1),
        (lambda: filled_with_a_float, 2),
    ],
    ids=["counter", "last", "last_of_another", "tensor", "item", "full"],
)
def test_what_changes_at_each_call_is_compiled_a_few_times(make: Callable[[], Any], most: int) -> None:
    program, model = make(), make()
    compiled = intarsia.compile(program, backend="kernels", fullgraph=True, options={"on_error": "raise"})
    for k in range(2, 11):
        x = torch.arange(36.0).view(12, 3) / k
        torch.testing.assert_close(compiled(x, k), model(x, k))
    assert intarsia.stats().graphs <= most


def test_resume_functions_of_one_point_are_shared() -> None:
    torch.manual_seed(0)
    compiled = intarsia.compile(three_branches, backend="kernels", options={"on_error": "raise"})
    for _ in range(40):
        x = torch.randn(4)
        torch.testing.assert_close(compiled(x, 3), three_branches(x, 3))
    assert intarsia.stats().graphs <= 7
