"""Three transformers models built from configurations, with random weights and no network."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

__all__ = ["bert", "gpt2", "llama", "token_batch"]

VOCABULARY = 1000


def token_batch() -> tuple[torch.Tensor]:
    """Return token numbers, i64[2, 128]."""
    return (torch.randint(0, VOCABULARY, (2, 128)),)


def bert() -> torch.nn.Module:
    """Return a BERT encoder: 6 layers, hidden size 384, 6 heads."""
    from transformers import BertConfig, BertModel

    return BertModel(
        BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=384,
            num_hidden_layers=6,
            num_attention_heads=6,
            intermediate_size=1536,
        )
    )


def gpt2() -> torch.nn.Module:
    """Return a GPT-2 decoder with its language head: 6 layers, hidden size 384, 6 heads."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config: Any = GPT2Config(
        vocab_size=VOCABULARY, n_embd=384, n_layer=6, n_head=6, use_cache=False, bos_token_id=0, eos_token_id=0
    )
    return GPT2LMHeadModel(config)


def llama() -> torch.nn.Module:
    """Return a Llama decoder with its language head: 4 layers, hidden size 256, 8 heads, 4 key/value heads."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=256,
            intermediate_size=688,
            num_hidden_layers=4,
            num_attention_heads=8,
            num_key_value_heads=4,
            use_cache=False,
        )
    )
