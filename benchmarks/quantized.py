"""A Llama block whose weights torchao has quantized, compiled by us and by torch.compile, beside eager.

    python benchmarks/quantized.py                    # int8 and int4, weights only; 1 and 64 tokens

The three run in turn in one process, on one thread, and CPU seconds are counted, so that other work on the machine
falls on all alike. Results are compared with eager first. Lines are JSON objects. torchao must be installed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), *(str(p) for p in ROOT.glob("packages/*/src"))]

import torch  # noqa: E402  (after the source tree)

import intarsia  # noqa: E402


def block(bits: str, tokens: int, hidden: int) -> tuple[torch.nn.Module, torch.Tensor, Any]:
    """Return a quantized block, its input and its angles."""
    from torchao import quantization
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=hidden * 11 // 4,
        num_attention_heads=8,
        num_key_value_heads=4,
        num_hidden_layers=1,
        vocab_size=10,
    )
    config._attn_implementation = "sdpa"
    made = LlamaDecoderLayer(config, 0).eval()
    x = torch.randn(1, tokens, hidden)
    angles = LlamaRotaryEmbedding(config)(x, torch.arange(tokens)[None])
    int4 = {"weight_dtype": torch.int4, "granularity": quantization.PerGroup(32)}
    by_bits = {"int8": quantization.Int8WeightOnlyConfig, "int4": lambda: quantization.IntxWeightOnlyConfig(**int4)}
    quantization.quantize_(made, by_bits[bits]())
    return made, x, angles


def seconds(call: Callable[[], Any], calls: int) -> float:
    """Return CPU seconds of one call, of several."""
    start = time.process_time()
    for _ in range(calls):
        call()
    return (time.process_time() - start) / calls


def measured(bits: str, tokens: int, hidden: int, rounds: int) -> dict[str, Any]:
    """Return milliseconds of a call of each, and ratios of medians over rounds in which all three run."""
    made, x, angles = block(bits, tokens, hidden)
    intarsia.reset()
    ours = intarsia.compile(made, fullgraph=True, options={"on_error": "raise"})
    theirs = torch.compile(made, fullgraph=True)
    calls = {
        name: lambda run=run: run(x, position_embeddings=angles)
        for name, run in (("eager", made), ("ours", ours), ("torch.compile", theirs))
    }
    want = calls["eager"]()
    for name in ("ours", "torch.compile"):
        torch.testing.assert_close(calls[name](), want, rtol=1e-4, atol=1e-4)
    stats = intarsia.stats()
    assert (stats.graphs, stats.frames_eager, stats.fallbacks) == (1, 0, 0)
    each = max(1, int(0.05 / seconds(calls["ours"], 3)))
    taken = [{name: seconds(call, each) for name, call in calls.items()} for _ in range(rounds)]
    median = lambda of: statistics.median(map(of, taken))
    return {
        "bits": bits,
        "tokens": tokens,
        **{f"{name} ms": round(1e3 * median(lambda t, name=name: t[name]), 3) for name in calls},
        "torch.compile over ours": round(median(lambda t: t["torch.compile"] / t["ours"]), 3),
        "eager over ours": round(median(lambda t: t["eager"] / t["ours"]), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for bits in ("int8", "int4"):
        for tokens in (1, 64):
            with torch.no_grad():
                print(json.dumps(measured(bits, tokens, given.hidden, given.rounds)), flush=True)


if __name__ == "__main__":
    main()
