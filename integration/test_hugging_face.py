"""Ten transformers model families as people build them: one graph each, at least one kernel, equal to eager."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch

import intarsia

VOCABULARY, HIDDEN, LAYERS, HEADS, BATCH, LENGTH = 97, 64, 2, 4, 2, 8
ENCODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 2 * HIDDEN,
    "max_position_embeddings": 32,
}
DECODER = {**ENCODER, "num_key_value_heads": 2, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
Inputs = dict[str, torch.Tensor]


def tokens(length: int = LENGTH) -> torch.Tensor:
    """Return token numbers, i64[BATCH, length]; none is a padding token."""
    return torch.randint(3, VOCABULARY, (BATCH, length))


def text() -> Inputs:
    return {"input_ids": tokens()}


def padded_text() -> Inputs:
    mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
    mask[0, -3:] = 0
    return {"input_ids": tokens(), "attention_mask": mask}


def translation() -> Inputs:
    return {"input_ids": tokens(), "decoder_input_ids": tokens(5)}


def pixels() -> Inputs:
    return {"pixel_values": torch.randn(BATCH, 3, 16, 16)}


def sound() -> Inputs:
    return {"input_features": torch.randn(BATCH, 8, 32)}


def bert() -> Any:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(**ENCODER))


def gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes: dict[str, Any] = {"vocab_size": VOCABULARY, "n_embd": HIDDEN, "n_layer": LAYERS, "n_head": HEADS}
    return GPT2LMHeadModel(GPT2Config(**sizes, n_positions=32, bos_token_id=0, eos_token_id=1))


def llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**DECODER))


def t5_config() -> Any:
    from transformers import T5Config

    sizes: dict[str, Any] = {"vocab_size": VOCABULARY, "d_model": HIDDEN, "d_kv": 16, "d_ff": 2 * HIDDEN}
    return T5Config(**sizes, num_layers=LAYERS, num_heads=HEADS, decoder_start_token_id=0)


def t5() -> Any:
    from transformers import T5ForConditionalGeneration

    return T5ForConditionalGeneration(t5_config())


def t5_encoder() -> Any:
    from transformers import T5EncoderModel

    return T5EncoderModel(t5_config())


def distilbert() -> Any:
    from transformers import DistilBertConfig, DistilBertModel

    sizes: dict[str, Any] = {"vocab_size": VOCABULARY, "dim": HIDDEN, "n_layers": LAYERS, "n_heads": HEADS}
    return DistilBertModel(DistilBertConfig(**sizes, hidden_dim=2 * HIDDEN, max_position_embeddings=32))


def vit() -> Any:
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {key: ENCODER[key] for key in ENCODER if key not in ("vocab_size", "max_position_embeddings")}
    return ViTForImageClassification(ViTConfig(**sizes, image_size=16, patch_size=4))


def whisper_encoder() -> Any:
    from transformers import WhisperConfig, WhisperModel

    config = WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=HIDDEN,
        encoder_layers=LAYERS,
        decoder_layers=1,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=2 * HIDDEN,
        decoder_ffn_dim=2 * HIDDEN,
        num_mel_bins=8,
        max_source_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=3,
    )
    return WhisperModel(config).encoder


def mistral() -> Any:
    from transformers import MistralConfig, MistralForCausalLM

    return MistralForCausalLM(MistralConfig(**DECODER, sliding_window=4))


def qwen2() -> Any:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return Qwen2ForCausalLM(Qwen2Config(**DECODER))


def roberta() -> Any:
    from transformers import RobertaConfig, RobertaModel

    return RobertaModel(RobertaConfig(**ENCODER, pad_token_id=1))


CASES = (
    (bert, text),
    (bert, padded_text),
    (gpt2, text),
    (llama, text),
    (llama, padded_text),
    (t5, translation),
    (t5_encoder, text),
    (distilbert, text),
    (vit, pixels),
    (whisper_encoder, sound),
    (mistral, text),
    (qwen2, text),
    (roberta, text),
)


@pytest.mark.parametrize(("make", "inputs"), CASES, ids=[f"{m.__name__}-{i.__name__}" for m, i in CASES])
def test_one_graph_equal_to_eager(make, inputs):
    torch.manual_seed(0)
    model = make().eval()
    intarsia.reset()
    fast = intarsia.compile(model, fullgraph=True, options={"on_error": "raise"})
    with torch.no_grad():
        first, second = inputs(), inputs()
        compare(fast(**first), model(**first))
        stats = intarsia.stats()
        assert (stats.graphs, stats.frames_compiled, stats.fallbacks) == (1, 1, 0)  # fullgraph refuses breaks
        assert stats.kernels_generated >= 1
        compare(fast(**second), model(**second))
    assert intarsia.stats().frames_compiled == 1 and intarsia.stats().recompiles == 0


@pytest.mark.peer
@pytest.mark.parametrize("ours_first", [True, False])
def test_beside_torch_compile_in_one_process(ours_first):
    torch.manual_seed(0)
    model, batch = llama().eval(), text()
    intarsia.reset()
    torch._dynamo.reset()
    ours = intarsia.compile(model, fullgraph=True, options={"on_error": "raise"})
    theirs = torch.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad():
        for fast in (ours, theirs, ours) if ours_first else (theirs, ours, theirs):
            compare(fast(**batch), model(**batch))
        # a module built after torch's compiler replaced the constructor of modules
        fresh = llama().eval()
        compare(intarsia.compile(fresh, fullgraph=True, options={"on_error": "raise"})(**batch), fresh(**batch))
    stats = intarsia.stats()
    assert (stats.graphs, stats.fallbacks) == (2, 0)


def compare(actual: Any, expected: Any) -> None:
    """Compare two model outputs: their classes, their keys, and every tensor in them, caches included."""
    assert type(actual) is type(expected)
    assert list(actual.keys()) == list(expected.keys())
    ours, theirs = list(tensors(actual)), list(tensors(expected))
    assert len(ours) == len(theirs) > 0
    for a, e in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, e)
        assert a.stride() == e.stride() and a.requires_grad == e.requires_grad


def tensors(value: Any) -> Any:
    """Yield the tensors of an output in order; a cache of transformers holds layers of keys and values."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item)
    elif hasattr(value, "__dict__"):
        for item in vars(value).values():
            yield from tensors(item)
