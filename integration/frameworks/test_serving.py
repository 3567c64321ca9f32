"""Requests of many shapes: few graphs and none more once warm; an exported program behind FastAPI loses no request."""

from __future__ import annotations

import os
import random
import subprocess
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch

import intarsia

RAISE = {"on_error": "raise"}
pytestmark = pytest.mark.filterwarnings("ignore")


def encoder():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        vocab_size=128,
        max_position_embeddings=256,
    )
    return transformers.BertModel(config).eval()


@pytest.mark.slow
@pytest.mark.parametrize(("dynamic", "most"), [(True, 2), (None, 3)])
def test_an_encoder_takes_500_shapes(fresh, dynamic, most):
    """Texts of at least two tokens, in batches of one and more, padded: a batch of one is a version of its own."""
    model, draw = encoder(), random.Random(0)
    fast = intarsia.compile(model, dynamic=dynamic, options=RAISE)
    shapes = draw.sample([(batch, length) for batch in range(1, 9) for length in range(2, 129)], 500)
    with torch.no_grad():
        for number, (batch, length) in enumerate(shapes):
            tokens = torch.randint(0, 128, (batch, length))
            mask = (torch.arange(length) < torch.randint(1, length + 1, (batch, 1))).long()
            actual = fast(tokens, attention_mask=mask).last_hidden_state
            if number % 20 == 0:
                expected = model(tokens, attention_mask=mask).last_hidden_state
                torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
            if number == 50:
                warm = intarsia.stats()
    assert intarsia.stats() == warm and warm.graphs <= most
    assert warm.frames_eager == warm.fallbacks == 0


def test_workers_that_are_killed_lose_no_request(tmp_path):
    for package in ("fastapi", "uvicorn"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    words = "--workers 2 --requests 60 --kills 2 --rounds 1"
    done = subprocess.run(
        [sys.executable, "-m", "integration.serving", *words.split()],
        env={**os.environ, "INTARSIA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.returncode == 0 and "0 requests lost" in done.stdout, done.stdout + done.stderr[-3000:]
    assert "2 workers killed" in done.stdout
