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


def language_model():
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=2, n_embd=32, n_head=2, vocab_size=128, n_positions=256, bos_token_id=0, eos_token_id=127
    )
    return transformers.GPT2LMHeadModel(config).eval()


def generate(model, batch, length, **keywords):
    generator = torch.Generator().manual_seed(1000 * batch + length)
    tokens = torch.randint(1, 120, (batch, length), generator=generator)
    torch.manual_seed(7)
    return model.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=6,
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


@pytest.mark.parametrize(("dynamic", "most"), [(True, 4), (None, 8)])
@pytest.mark.parametrize("kind", KINDS)
def test_few_graphs(fresh, kind, dynamic, most):
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
    assert counts.graphs <= most and counts.frames_eager == counts.fallbacks == 0
    for batch, length in requests:  # all of it warm
        if kind == "assisted":
            keywords["assistant_model"] = copy.deepcopy(model)
        generate(fast, batch, length, **keywords)
    assert intarsia.stats().graphs == counts.graphs


def test_a_static_cache_of_changing_length(fresh):
    model = language_model()
    fast = intarsia.compile(copy.deepcopy(model), dynamic=True, options=RAISE)
    requests = [request for request in REQUESTS if request[0] > 1]
    for batch, length in requests:
        expected = generate(model, batch, length, do_sample=False, cache_implementation="static")
        actual = generate(fast, batch, length, do_sample=False, cache_implementation="static")
        assert torch.equal(actual, expected)
    assert intarsia.stats().graphs <= 4 and intarsia.stats().fallbacks == 0


def test_many_requests_of_random_sizes(fresh):
    model = language_model()
    fast = intarsia.compile(model, dynamic=True, options=RAISE)
    draw = random.Random(0)
    for _ in range(30):
        generate(fast, draw.randint(1, 4), draw.randint(2, 40), do_sample=False)
    assert intarsia.stats().graphs <= 4 and intarsia.stats().frames_eager == 0
