"""Small configurations of any architecture, with random weights, and inputs for them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from typing import Any

import torch
from transformers import PretrainedConfig

__all__ = ["attempts", "shrink"]

# what configurations call their sizes -> a small one; heads divide widths
SIZES = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "hidden_dim", "embed_dim", "emb_dim", "width"), 48),
    **dict.fromkeys(("projection_dim", "embedding_size", "word_embed_proj_dim", "output_dim"), 48),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_encoder_layers", "depth"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "multi_query_group_num"), 2),
    **dict.fromkeys(("head_dim", "d_kv", "attention_head_dim"), 12),
    **dict.fromkeys(("intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "ffn_dim", "d_inner"), 64),
    **dict.fromkeys(("ffn_hidden_size", "moe_intermediate_size", "shared_expert_intermediate_size", "n_inner"), 64),
    **dict.fromkeys(("vocab_size", "text_vocab_size"), 120),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "top_k", "moe_k", "experts_per_token"), 2),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 16),
    **dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"), 8),
    **dict.fromkeys(("sliding_window", "attention_window"), 8),
}
# lists, an entry a stage: of so many channels, and of so many layers
WIDTHS = ("hidden_sizes", "embed_dims", "encoder_hidden_sizes", "neck_hidden_sizes", "dims")
DEPTHS = ("depths", "layers", "num_blocks", "encoder_depths")
LENGTH = 12
BATCH = 2
SAMPLES = 4000  # of sound: a quarter of a second


def shrink(config: PretrainedConfig) -> PretrainedConfig:
    """Make a configuration small in place, those inside it too, and take dropout away; return it."""
    for name, value in list(vars(config).items()):
        if isinstance(value, PretrainedConfig):
            shrink(value)
        elif (small := _small(name, value)) is not None:
            setattr(config, name, small)
    most = getattr(config, "vocab_size", None)
    for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
        if isinstance(most, int) and isinstance(getattr(config, name, None), int) and getattr(config, name) >= most:
            setattr(config, name, 1)
    return config


def _small(name: str, value: Any) -> Any:
    """Return what takes the place of a value of a configuration; None: it stays."""
    if type(value) is int and name in SIZES and value > SIZES[name]:
        return SIZES[name]
    if type(value) is float and ("drop" in name or name == "layerdrop"):
        return 0.0
    if isinstance(value, (list, tuple)) and value and all(type(n) is int for n in value):
        if name in WIDTHS:
            return type(value)(16 << k for k in range(len(value)))
        if name in DEPTHS:
            return type(value)(1 for _ in value)
    return None


def attempts(model: torch.nn.Module, batch: int = BATCH) -> Iterator[dict[str, torch.Tensor]]:
    """Yield arguments that a model may take, the least first."""
    takes = inspect.signature(model.forward).parameters
    makers = {name: make for name, make in MAKERS.items() if name in takes}
    main = model.main_input_name if isinstance(model.main_input_name, str) else next(iter(takes))
    first = [name for name in (main, *makers) if name in makers][:1]
    more = [name for name in ("decoder_input_ids",) if name in makers and model.config.is_encoder_decoder]
    for names in ([*first, *more], [*first, *more, "pixel_values"], ["input_ids", *first], list(makers)):
        chosen = [name for name in dict.fromkeys(names) if name in makers]
        if chosen:
            yield {name: makers[name](model.config, batch) for name in chosen}


def _sub(config: PretrainedConfig, *names: str) -> PretrainedConfig:
    """Return the configuration inside this one that has one of these names, or this one."""
    return next((getattr(config, name) for name in names if getattr(config, name, None) is not None), config)


def _tokens(config: PretrainedConfig, batch: int) -> torch.Tensor:
    most = getattr(_sub(config, "text_config", "decoder", "thinker_config"), "vocab_size", 100)
    return torch.randint(3, min(most, 90), (batch, LENGTH))


def _image(config: PretrainedConfig, batch: int) -> torch.Tensor:
    inner = _sub(config, "vision_config", "encoder", "backbone_config")
    size = getattr(inner, "image_size", 64)
    sides = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    return torch.randn(batch, getattr(inner, "num_channels", 3) or 3, *sides)


def _features(config: PretrainedConfig, batch: int) -> torch.Tensor:
    inner = _sub(config, "audio_config")
    length = 2 * (getattr(inner, "max_source_positions", None) or 50)
    n_bins = getattr(inner, "num_mel_bins", None) or getattr(inner, "input_feat_per_channel", None) or 80
    shape = (n_bins, length) if hasattr(inner, "num_mel_bins") else (length, n_bins)
    return torch.randn(batch, *shape)


def _sound(config: PretrainedConfig, batch: int) -> torch.Tensor:
    if hasattr(config, "max_length") and hasattr(config, "num_mel_bins"):  # a spectrogram
        return torch.randn(batch, config.max_length, config.num_mel_bins)
    channels = getattr(config, "audio_channels", None)
    return torch.randn(batch, SAMPLES) if channels is None else torch.randn(batch, channels, SAMPLES)


def _past(config: PretrainedConfig, batch: int) -> torch.Tensor:
    return torch.randn(batch, math.prod([getattr(config, "context_length", None) or 32]))


MAKERS = {
    "input_ids": _tokens,
    "pixel_values": _image,
    "input_features": _features,
    "input_values": _sound,
    "past_values": _past,
    "decoder_input_ids": _tokens,
}
