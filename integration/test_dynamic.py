"""Dynamic sizes end to end: how often a function is compiled over many sizes, equal to eager at each of them."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch

import intarsia
from intarsia_ir.errors import InvalidArgumentError

RAISE = {"on_error": "raise"}


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    intarsia.reset()
    with torch.no_grad():
        yield
    intarsia.reset()


def compiled(function: Any, **keywords: Any) -> Any:
    return intarsia.compile(function, options=RAISE, **keywords)


def agree(function: Callable[..., Any], fast: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Compare a call with eager: values, strides, and everything that isn't a tensor."""
    want, got = function(*args, **kwargs), fast(*args, **kwargs)
    torch.utils._pytree.tree_map(same, want, got)


def same(want: Any, got: Any) -> None:
    if isinstance(want, torch.Tensor):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        assert got.stride() == want.stride()
    else:
        assert type(got) is type(want) and got == want


def compilations() -> int:
    stats = intarsia.stats()
    assert (stats.fallbacks, stats.frames_eager) == (0, 0)
    return stats.frames_compiled


# ---- models


def test_bert_over_fifty_lengths_is_compiled_twice():
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=97,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=128,
    )
    model = BertModel(config).eval()
    fast = compiled(model)
    for length in random.Random(0).sample(range(3, 128), 50):
        ids = torch.randint(0, 97, (2, length))
        mask = (torch.arange(length) < torch.tensor([[length], [length // 2 + 1]])).long()
        want, got = model(ids, attention_mask=mask), fast(ids, attention_mask=mask)
        same(want.last_hidden_state, got.last_hidden_state)
        same(want.pooler_output, got.pooler_output)
    assert compilations() == 2


def test_llama_decodes_with_one_compilation_for_the_prompt_and_two_for_all_tokens():
    from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=97,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=128,
        max_position_embeddings=128,
    )
    model = LlamaForCausalLM(config).eval()
    fast = compiled(model)

    def decode(call: Callable[..., Any], prompt: torch.Tensor, n_tokens: int) -> torch.Tensor:
        cache, ids, logits = DynamicCache(config=config), prompt, []
        for _ in range(n_tokens):
            out = call(ids, past_key_values=cache, use_cache=True)
            ids = out.logits[:, -1:].argmax(-1)
            logits.append(out.logits[:, -1])
        return torch.stack(logits)

    prompt = torch.randint(0, 97, (1, 9))
    same(decode(model, prompt, 1), decode(fast, prompt, 1))
    assert compilations() == 1
    same(decode(model, prompt, 30), decode(fast, prompt, 30))
    assert compilations() == 3
    same(decode(model, prompt, 60), decode(fast, prompt, 60))
    assert compilations() == 3


def test_resnet_over_twenty_image_sizes_is_compiled_twice():
    from integration.models.resnet import resnet18

    model = resnet18().eval()
    fast = compiled(model)
    rng = random.Random(0)
    for _ in range(20):
        image = torch.randn(1, 3, rng.randrange(40, 100), rng.randrange(40, 100))
        same(model(image), fast(image))
    assert compilations() == 2


# ---- what becomes a symbol


def test_a_size_that_changes_becomes_a_symbol():
    def f(x):
        return torch.relu(x) @ x.T

    fast = compiled(f)
    for n in (4, 5, 6, 9, 30):
        agree(f, fast, torch.randn(n, 3))
    assert compilations() == 2


def test_an_int_that_changes_becomes_a_symbol():
    def f(x, n):
        return x * n + torch.arange(n).sum(), n * 2

    fast = compiled(f)
    x = torch.randn(4)
    for n in (4, 5, 6, 9, 30):
        agree(f, fast, x, n)
    assert compilations() == 2


def test_zero_and_one_and_negative_ints_are_compiled_apart():
    def f(x, n):
        return x + n, x.shape[0] - 1

    fast = compiled(f)
    for size, n in ((4, 4), (5, 5), (1, 7), (0, 8), (6, -3), (6, 0), (6, 1), (7, 9)):
        agree(f, fast, torch.randn(size), n)
    assert compilations() <= 7


def test_true_makes_every_size_a_symbol_at_once():
    def f(x, y, n):
        return (x @ y) * n

    fast = compiled(f, dynamic=True)
    for b, t, n in ((3, 4, 5), (5, 2, 3), (7, 9, 2)):
        agree(f, fast, torch.randn(b, t), torch.randn(t, b), n)
    assert compilations() == 1


def test_false_makes_none():
    def f(x):
        return x + 1

    fast = compiled(f, dynamic=False)
    marked = torch.randn(3)
    intarsia.mark_dynamic(marked, 0)
    agree(f, fast, marked)
    for n in (4, 5):
        agree(f, fast, torch.randn(n))
    assert compilations() == 3


def test_an_int_of_an_object_and_a_global():
    class Counter:
        n = 4

    counter = Counter()

    def f(x):
        return x[: counter.n] * 2

    fast = compiled(f)
    for n in (4, 5, 6, 7):
        counter.n = n
        agree(f, fast, torch.randn(9))
    assert compilations() == 2


STEPS = {
    "power": lambda n: n**-0.5,
    "decay": lambda n: 0.9**n,
    "bias correction": lambda n: 1e-3 * math.sqrt(1 - 0.999**n) / (1 - 0.9**n),
    "two branches of a minimum": lambda n: min(n**-0.5, n * 4**-1.5),
    "warm-up": lambda n: min(1.0, n / 10),
    "cosine": lambda n: 0.5 * (1 + math.cos(math.pi * n / 20)),
    "sine, absolute": lambda n: abs(math.sin(n / 10)),
    "exponential": lambda n: math.exp(-n / 10) + math.log(n),
    "floor": lambda n: math.floor(n / 3),
    "ceiling of a float": lambda n: math.ceil(n / 2.5),
    "int": lambda n: int(n / 2.5) + int(n / 3),
    "rounded": lambda n: round(n / 3, 1) + round(n / 3),
    "bits": lambda n: (n & 3) + (n | 8) + (n ^ 5) + (n << 2) + (n >> 1),
    "pow and max": lambda n: max(pow(n, 0.5), 2.0),
}


@pytest.mark.parametrize("name", STEPS)
def test_what_a_step_counter_goes_through_is_compiled_twice(name):
    """Python computes it at each call, so it is Python's to the last bit; nothing depends on the number of the step."""
    body = STEPS[name]

    class Schedule:
        n = 2

    def f(x, schedule):
        schedule.n += 1
        rate = body(schedule.n)
        return x * rate, x.to(torch.int64) * rate, rate

    fast, mine, theirs = compiled(f), Schedule(), Schedule()
    for _ in range(12):
        x = torch.randn(5)
        actual, expected = fast(x, mine), f(x, theirs)
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)
        assert type(actual[2]) is type(expected[2]) and mine.n == theirs.n
    assert compilations() == 2


LARGE = {
    "remainder": lambda x, n: x + (n * n * n) % 11,
    "power": lambda x, n: x + n**4 % 11,
    "high power": lambda x, n: x + n**8 % 7,
    "bits": lambda x, n: x + (n * n * n * n & 15),
    "itself": lambda x, n: x + n * n * n * n,
    "refused": lambda x, n: x - n * n * n * n,
    "size": lambda x, n: (x, torch.arange((n * n * n * n) % 11)),
    "shift": lambda x, n: (x + (n * n * n) % 11, (n << 40) % 13),
    "two": lambda x, n: x + (n * (n + 1) * (n + 2) * (n + 3) - n**4) % 101,
}


@pytest.mark.parametrize("name", LARGE)
def test_results_too_large_for_64_bits_are_pythons(name):
    def f(x, n):
        return LARGE[name](x, n)

    fast = compiled(f)
    for n in (3, 4, 5, 3_000_000, 50_000, 7, (1 << 40) + 1):
        x = torch.ones(2)
        try:
            expected = f(x, n)
        except (OverflowError, RuntimeError) as error:
            with pytest.raises(type(error)):
                fast(x, n)
            continue
        torch.testing.assert_close(fast(x, n), expected, rtol=0, atol=0)


def test_rounding_to_a_number_of_digits_that_changes():
    def f(x, n, digits):
        return x + 1, round(n, digits)

    fast = compiled(f)
    for n, digits in ((15, 1), (25, 2), (35, -1), (15, 0), (15, -1)):
        agree(f, fast, torch.ones(2), n, digits)


def test_a_float_too_large_for_the_tensor_is_infinite():
    def f(x, s):
        return x * s, x + s, s - x, x > s

    fast = compiled(f)
    for s in (0.1, 0.2, 1e300, -1e39, 3.5e38):
        agree(f, fast, torch.ones(2), s)
    assert compilations() == 2


def test_numbers_of_a_list_that_are_constants_after_all():
    def f(x, numbers):
        for n in numbers:
            x = x + n
            if n == 3 and len(numbers) < 6:
                numbers.append(4)
        return x

    fast = compiled(f)
    for numbers in ([1, 2, 3], [3, 3], [3, 3, 3]):
        mine, theirs = list(numbers), list(numbers)
        torch.testing.assert_close(fast(torch.ones(2), mine), f(torch.ones(2), theirs))
        assert mine == theirs


def test_layouts_that_change_have_strides_that_are_symbols():
    fast, x = compiled(lambda x: x * 2), torch.randn(2, 3, 4, 4)
    for view in (x, x.to(memory_format=torch.channels_last), x.transpose(1, 2), x[:, ::2], x[:, :, 1:3]):
        agree(lambda x: x * 2, fast, view)


def test_sizes_from_rounded_numbers():
    def f(x, n):
        return x[: math.floor(n / 3)], x[: n >> 1] * 2, x[: min(n << 1, 30)], torch.zeros(math.ceil(n / 3))

    fast = compiled(f)
    for n in (5, 6, 9, 12, 14):
        agree(f, fast, torch.randn(40), n)
    assert compilations() == 2


WINDOWS = {
    "convolution": lambda x: torch.nn.functional.conv1d(x, torch.ones(3, x.shape[1], 4)),
    "pool": lambda x: torch.nn.functional.avg_pool1d(x, 5, 2),
    "diagonal": lambda x: torch.diagonal_copy(x, 1, 1, 2),
    "spectrum": lambda x: torch.fft.irfft(torch.fft.rfft(x)),
    "difference": lambda x: torch.diff(x) * 2,
    "power": lambda x: x * x.shape[0] ** 0.145,
}


@pytest.mark.parametrize("name", WINDOWS)
def test_sizes_that_might_be_empty_stay_symbols(name):
    """The strides of a result hold `max(1, size)`."""
    fast = compiled(WINDOWS[name], dynamic=True)
    for n in (12, 14, 20, 30):
        agree(WINDOWS[name], fast, torch.randn(3, 6, n))
    assert compilations() == 1


# ---- Python that looks at sizes


def branches(x):
    return x.sin() if x.shape[0] > 5 else x.cos()


def loops(x):
    for _ in range(x.shape[0]):
        x = x + 1
    return x


def texts(x):
    return x + 1, f"{x.shape[0]} rows of {x.shape[1]:>3}"


def returns_sizes(x):
    n, m = x.shape
    return x * 2, x.shape, n // 2, -n, n % 3, n / 4, n > m, (n + m) ** 2, max(n, m), [n] * 2, {"n": n}


def lists(x):
    return [0] * x.shape[0], x + 1


def keys(x):
    return {4: "four"}.get(x.shape[0], "many"), x + 1


def slices(x):
    n = x.shape[0]
    return x[n // 2 :], x[: n - 1, -1], x[None, ..., ::2]


def new_tensors(x):
    n, m = x.size()
    return torch.zeros(n, m + 1), torch.full((m,), n), torch.arange(n * m).view(m, n), x.new_ones(n + m)


def views(x):
    n, m = x.shape
    return x.reshape(-1), x.T.reshape(n * m), x.view(n, 1, m).expand(n, 3, m), x.unflatten(1, (m, 1))


def checks(x):
    n = x.shape[0]
    assert n > 1, n
    torch._check(n < 100)
    return x[:n] + len(x)


def identities(x):
    return x.shape[0] is None, x.shape[0] == x.shape[1], isinstance(x.shape[0], int), type(x.shape[0]) is int, x + 1


def conversions(x):
    n = x.shape[0]
    return int(n), float(n), bool(n), str(n), abs(n), divmod(n, 3), x * float(n), round(n / 3), x + 1


def in_place(x):
    y = x.clone()
    y[: x.shape[0] // 2].add_(1)
    return y.t_(), y.shape


def interpolates(x):
    return torch.nn.functional.interpolate(x[None, None], scale_factor=2.0, mode="nearest")


def pads(x):
    return torch.nn.functional.pad(x, (1, x.shape[0])), torch.cat([x, x[:2]]), torch.stack([x, x])


PROGRAMS = (
    branches, loops, texts, returns_sizes, lists, keys, slices, new_tensors, views, checks, identities, conversions,
    in_place, interpolates, pads,
)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dynamic", [None, True])
def test_python_that_looks_at_sizes(program, dynamic):
    fast = compiled(program, dynamic=dynamic)
    for n, m in ((4, 3), (5, 7), (6, 8), (7, 2), (8, 8), (3, 5)):
        agree(program, fast, torch.randn(n, m))
    assert intarsia.stats().fallbacks == 0


# ---- marks


def test_a_marked_size_is_a_symbol_at_the_first_call():
    def f(x):
        return x * 2

    fast = compiled(f)
    for n in (4, 5, 9):
        x = torch.randn(n, 3)
        intarsia.mark_dynamic(x, 0, min=2, max=64)
        agree(f, fast, x)
    assert compilations() == 1


def test_a_violated_mark_names_dimension_relation_and_line():
    def f(x):
        y = x * 2
        return y if x.shape[1] > 4 else y + 1

    x = torch.randn(3, 8)
    intarsia.mark_dynamic(x, 1, min=2, max=64)
    with pytest.raises(InvalidArgumentError) as caught:
        intarsia.compile(f)(x)
    text = str(caught.value)
    assert "x.size(1)" in text and "s0 > 4" in text and "test_dynamic.py" in text and caught.value.where[0].line


def test_a_specialised_mark_is_violated():
    def f(x):
        return x + torch.ones(5)

    x = torch.randn(3, 5)
    intarsia.mark_dynamic(x, 1)
    with pytest.raises(InvalidArgumentError, match=r"x\.size\(1\).* == 5"):
        intarsia.compile(f)(x)


def test_a_static_mark_keeps_a_size_out():
    def f(x):
        return x * 2

    fast = compiled(f, dynamic=True)
    for n in (4, 5):
        x = torch.randn(n, n + 1)
        intarsia.mark_static(x, 0)
        agree(f, fast, x)
    assert compilations() == 2


def test_explain_shows_sizes_and_the_lines_that_rely_on_them():
    def f(x):
        return x + 1 if x.shape[0] > 3 else x

    text = str(intarsia.explain(f, dynamic=True)(torch.randn(6, 2)))
    assert "x.size(0)" in text and "s0 > 3" in text and "test_dynamic.py" in text


# ---- sizes that depend on data, beside sizes that differ from call to call


def positions(x):
    found = torch.nonzero(x > 0)
    return found * 2, found.shape[0] > 1


def picked(x):
    n = int((x > 0).sum().item())
    torch._check(n <= x.numel())
    return x.flatten()[:n] * 2


@pytest.mark.parametrize("program", [positions, picked, lambda x: x[x > 0] + 1])
@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_that_depend_on_data(program, dynamic):
    fast = compiled(program, dynamic=dynamic)
    for n in (4, 5, 6, 7):
        agree(program, fast, torch.randn(n, 3))
    assert compilations() == (1 if dynamic else 2)
    assert not intarsia.explain(program, dynamic=True)(torch.randn(5, 3)).breaks


def writes_a_row(x, i):
    x[i] = x[i - 1] * 2
    x[i, 1:] = 3
    x[..., i % 3] += 1
    return x * 1


INDEXED = {
    "an item": lambda x, i: (x[i], x[i, 2], x[-i], x[1:, 2][i]),
    "an item behind an ellipsis": lambda x, i: (x.t()[..., i], x.t()[:, i, None], x[None, i]),
    "the last of something": lambda x, i: x[x[:i].size(0) - 1],
    "a written row": writes_a_row,
    "data": lambda x, i: (torch.tensor(i), torch.tensor([i, 2 * i, 7]), torch.as_tensor((i, 3), dtype=torch.long)),
    "an answer about a size": lambda x, i: torch.full((2,), i >= 7, dtype=torch.bool),
}


@pytest.mark.parametrize("name", INDEXED)
def test_ints_as_indices_and_as_data_stay_symbols(name):
    program = INDEXED[name]
    fast = intarsia.compile(program, options=RAISE)
    for i in range(2, 12):
        given = [torch.arange(60.0).reshape(15, 4) for _ in range(2)]
        got, expected = fast(given[0], i), program(given[1], i)
        torch.testing.assert_close((got, given[0]), (expected, given[1]))
        flat = [part if isinstance(part, tuple) else (part,) for part in (got, expected)]
        assert [t.stride() for t in flat[0]] == [t.stride() for t in flat[1]]
    stats = intarsia.stats()
    assert stats.frames_compiled <= (4 if name == "a written row" else 3) and stats.fallbacks == 0


def test_an_index_beyond_the_end_raises_eagers_error():
    fast = intarsia.compile(lambda x, i: x[i] + 1, options=RAISE)
    x = torch.arange(5.0)
    for i in (2, 3, 4):
        assert fast(x, i) == i + 1
    with pytest.raises(IndexError):
        fast(x, 5)
    assert fast(x, 3) == 4


def written(x, k):
    x = x.clone()
    x[:, -k:-1] += 1.5
    x[:, -k:] *= 2
    return x


def written_at(x, k):
    x = x.clone()
    if k <= x.size(1):
        x[:, -k] = 1.5
    return x


BOUNDS = {
    "to the end": lambda x, k: x[:, -k:] + 1,
    "to a constant from the end": lambda x, k: x[:, -k:-1] + 1,
    "to a constant": lambda x, k: x[:, -k:3] + 1,
    "to the size": lambda x, k: x[:, -k : x.size(1)] + 1,
    "from a constant": lambda x, k: x[:, -5:] * k,
    "from either side": lambda x, k: x[:, k - 3 :] + 1,
    "in steps": lambda x, k: x[:, -k::2] + 1,
    "in steps from a constant": lambda x, k: x[:, -4::2] * k,
    "up to it": lambda x, k: x[:, :-k] + 1,
    "one": lambda x, k: x[:, -k] + 1 if k <= x.size(1) else x,
    "one from either side": lambda x, k: x[:, k - 4] + 1 if k - 4 < x.size(1) else x,
    "narrow": lambda x, k: x.narrow(1, -2, 2) * k,
    "written": written,
    "written at": written_at,
}


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("dynamic", [None, True])
def test_slices_that_are_counted_from_the_end_by_a_number(name, dynamic):
    fast = compiled(BOUNDS[name], dynamic=dynamic)
    for size, k in [(5, 2), (6, 3), (3, 7), (2, 2), (4, 9), (8, 5), (9, 3), (4, 4), (12, 6)]:
        agree(BOUNDS[name], fast, torch.randn(2, size, 4), k)
    assert intarsia.stats().graphs <= 7 and intarsia.stats().fallbacks == 0


class Limits:
    def __init__(self, last):
        self.last = last


@pytest.mark.parametrize(("dynamic", "graphs"), [(None, 2), (True, 1), (False, 5)])
def test_a_number_of_an_object_is_a_symbol_once_it_changes(dynamic, graphs):
    def positions_up_to(x, limits):
        return torch.arange(limits.last) * x

    fast = compiled(positions_up_to, dynamic=dynamic)
    for last in (18, 20, 25, 31, 40):
        agree(positions_up_to, fast, torch.ones(1), Limits(last))
    assert intarsia.stats().graphs == graphs


class Held(torch.nn.Module):
    last = 18

    def forward(self, x):
        return torch.arange(self.last) * x


def test_a_number_of_a_module_is_one_once_it_changes():
    """Most numbers of modules are settings that never do."""
    model = Held()
    fast = compiled(model, dynamic=True)
    for last in (18, 20, 25, 31):
        model.last = last
        torch.testing.assert_close(fast(torch.ones(1)), model(torch.ones(1)))
    assert intarsia.stats().graphs == 2


def pooled(x):
    return torch.nn.functional.adaptive_avg_pool2d(x, 1) * 2


def one_place(x):
    return x.as_strided((x.size(0), 4, 1, 1), (4, 1, 4, 4)) * 2


@pytest.mark.parametrize("program", [pooled, one_place])
def test_one_version_for_batches_of_images_of_one_place(program):
    """Channels-last pooling writes strides that mean nothing, which eager shows: they are equal, too."""
    fast = compiled(program)
    for batch in (2, 3, 4, 5, 9):
        agree(program, fast, torch.randn(batch, 4, 3, 3).to(memory_format=torch.channels_last))
    assert intarsia.stats().graphs == 2


def test_a_class_made_inside_holds_what_changes():
    def f(x, n):
        class Scale:
            factor = n
            given = x

        return Scale.given * Scale.factor

    compiled = intarsia.compile(f, options={"on_error": "raise"})
    for n in (1, 2, 5, 2.5, 3.5):
        x = torch.ones(4) + n
        torch.testing.assert_close(compiled(x, n), f(x, n))
    assert intarsia.stats().recompiles == 2  # once for all ints, once for all floats
