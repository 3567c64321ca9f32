"""`generate` of transformers: eager's tokens from few graphs, and none more once each kind of request was seen."""

from __future__ import annotations

import copy
import os
import random

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch

import intarsia

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

RAISE = {"on_error": "raise"}
pytestmark = pytest.mark.filterwarnings("ignore")
REQUESTS = [(2, 5), (2, 7), (3, 9), (1, 4), (5, 6), (4, 20), (2, 11), (1, 30), (6, 3)]


def language_model(n_layers=2):
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=n_layers, n_embd=32, n_head=2, vocab_size=128, n_positions=256, bos_token_id=0, eos_token_id=127
    )
    return transformers.GPT2LMHeadModel(config).eval()


def generate(model, batch, length, *, steps=6, **keywords):
    generator = torch.Generator().manual_seed(1000 * batch + length)
    tokens = torch.randint(1, 120, (batch, length), generator=generator)
    torch.manual_seed(7)
    return model.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=steps,
        pad_token_id=0,
        eos_token_id=None,
        **keywords,
    )


KINDS = {
    "greedy": {"do_sample": False},
    "sampled": {"do_sample": True},
    "beams": {"do_sample": False, "num_beams": 3},
    "assisted": {"do_sample": False, "assistant_model": True},
}


@pytest.mark.parametrize("dynamic", [True, None])
@pytest.mark.parametrize("kind", KINDS)
def test_few_graphs(fresh, kind, dynamic):
    model = language_model()
    fast = intarsia.compile(copy.deepcopy(model), dynamic=dynamic, options=RAISE)
    keywords = dict(KINDS[kind])
    requests = [(1, length) for _, length in REQUESTS] if kind == "assisted" else REQUESTS
    for batch, length in requests:
        if kind == "assisted":
            keywords["assistant_model"] = copy.deepcopy(model)
        expected = generate(model, batch, length, **keywords)
        if kind == "assisted":
            keywords["assistant_model"] = copy.deepcopy(model)
        assert torch.equal(generate(fast, batch, length, **keywords), expected)
    counts = intarsia.stats()
    assert 0 < counts.graphs <= 4 and counts.frames_eager == counts.fallbacks == 0
    for batch, length in requests:  # all of it warm
        if kind == "assisted":
            keywords["assistant_model"] = copy.deepcopy(model)
        generate(fast, batch, length, **keywords)
    assert intarsia.stats().graphs == counts.graphs


@pytest.mark.slow
def test_a_static_cache_of_changing_length(fresh):
    """The cache's length is a symbol, as sizes are: an object that calls are given has it; a batch of one is apart."""
    model = language_model()
    fast = intarsia.compile(copy.deepcopy(model), options=RAISE)
    for requests, most in (([r for r in REQUESTS if r[0] > 1], 2), (REQUESTS, 4)):
        for batch, length in requests:
            expected = generate(model, batch, length, do_sample=False, cache_implementation="static")
            actual = generate(fast, batch, length, do_sample=False, cache_implementation="static")
            assert torch.equal(actual, expected)
        assert intarsia.stats().graphs <= most and intarsia.stats().fallbacks == 0


@pytest.mark.slow
def test_many_requests_of_random_sizes(fresh):
    model = language_model(n_layers=1)
    fast = intarsia.compile(copy.deepcopy(model), options=RAISE)
    draw = random.Random(0)
    for number in range(1000):
        if number == 40:
            warm = intarsia.stats()
        batch, length = draw.randint(1, 4), draw.randint(2, 40)
        keywords = {"steps": 2, "do_sample": number % 2 == 1}
        actual = generate(fast, batch, length, **keywords)
        if number % 20 < 2:  # one greedy, one sampled
            assert torch.equal(actual, generate(model, batch, length, **keywords)), number
    assert intarsia.stats() == warm and warm.graphs <= 4
    assert warm.frames_compiled > 0 and warm.frames_eager == warm.fallbacks == 0


class Reader(torch.nn.Module):
    """A model whose own method calls it, with a text as long as it comes."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = torch.nn.Embedding(16, 8), torch.nn.Linear(8, 2)

    def forward(self, tokens):
        return self.head(self.embedding(tokens).mean(1))

    def read(self, *texts):
        return [self(text) for text in texts]


def test_calls_by_methods_vary_from_the_first_on(fresh):
    model = Reader()
    fast = intarsia.compile(model, options=RAISE)
    texts = [torch.randint(16, (batch, length)) for batch, length in [(2, 3), (5, 9), (3, 4)]]
    with torch.no_grad():
        torch.testing.assert_close(fast.read(*texts), model.read(*texts))
        assert intarsia.stats().graphs == 1 and intarsia.stats().fallbacks == 0
        for text in texts:  # what was compiled for a method serves every call
            torch.testing.assert_close(fast(text), model(text))
        assert intarsia.stats().graphs == 1


def test_other_calls_begin_with_constants(fresh):
    """With gradients, or where nothing but the call is seen, sizes are taken to stay until they change."""
    model = Reader()
    fast = intarsia.compile(model, options=RAISE)
    texts = [torch.randint(16, (batch, length)) for batch, length in [(2, 3), (5, 9), (3, 4)]]
    torch.testing.assert_close(fast.read(*texts), model.read(*texts))
    assert intarsia.stats().graphs == 2
    static = intarsia.compile(model, dynamic=False, options=RAISE)
    intarsia.reset()
    with torch.no_grad():
        torch.testing.assert_close(static.read(*texts), model.read(*texts))
    assert intarsia.stats().graphs == 3
