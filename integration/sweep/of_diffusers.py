"""Models of diffusers from tiny configurations, and whole loops of its schedulers' steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from integration.sweep.cases import Case, Inputs

__all__ = ["built", "families", "version"]

BATCHES = (2, 3, 5)
WIDTH = 32  # of texts' hidden states
Made = Callable[[int], Inputs]


def _noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def _times(batch: int) -> torch.Tensor:
    return torch.randint(0, 1000, (batch,))


def _text(batch: int, width: int = WIDTH) -> torch.Tensor:
    return torch.randn(batch, 7, width)


def _mask(batch: int, dtype: torch.dtype = torch.bool) -> torch.Tensor:
    """Return a mask of texts whose last token isn't there."""
    mask = torch.ones(batch, 7, dtype=dtype)
    mask[:, -1] = 0
    return mask


def _unet(batch: int) -> Inputs:
    return {"sample": _noise(batch, 4, 16, 16), "timestep": _times(batch)}


def _guided(batch: int) -> Inputs:
    return _unet(batch) | {"encoder_hidden_states": _text(batch)}


def _frames(batch: int) -> Inputs:
    return _guided(batch) | {"sample": _noise(batch, 4, 3, 16, 16)}


def _image(batch: int) -> Inputs:
    return {"sample": _noise(batch, 3, 16, 16)}


def _film(batch: int) -> Inputs:
    return {"sample": _noise(batch, 3, 5, 16, 16)}


def _latents(*shape: int) -> Made:
    """Make the inputs that most transformers take."""
    return lambda batch: {
        "hidden_states": _noise(batch, *shape),
        "timestep": _times(batch),
        "encoder_hidden_states": _text(batch),
    }


def _flux(batch: int) -> Inputs:
    ids = {"img_ids": torch.arange(48.0).reshape(16, 3) % 4, "txt_ids": torch.zeros(7, 3)}
    return _latents(16, 8)(batch) | {"timestep": torch.rand(batch)} | ids


TWO = {"block_out_channels": (16, 32), "layers_per_block": 1, "norm_num_groups": 8}
VAE = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
HEADS = {"num_attention_heads": 2, "attention_head_dim": 16}
LAYER = HEADS | {"num_layers": 1}
# class: its configuration, and inputs for a batch size
UNETS: dict[str, tuple[dict[str, Any], Made]] = {
    "UNet2DModel": (
        TWO | {"sample_size": 16, "in_channels": 4, "out_channels": 4, "attention_head_dim": 8}
        | {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")},
        _unet,
    ),
    "UNet2DConditionModel": (
        TWO | {"sample_size": 16, "cross_attention_dim": WIDTH, "attention_head_dim": 2}
        | {"down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D")}
        | {"up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D")},
        _guided,
    ),
    "UNet1DModel": (
        {"sample_size": 32, "in_channels": 4, "out_channels": 4, "block_out_channels": (32, 64), "norm_num_groups": 8}
        | {"extra_in_channels": 64, "down_block_types": ("DownBlock1DNoSkip", "AttnDownBlock1D")}
        | {"up_block_types": ("AttnUpBlock1D", "UpBlock1DNoSkip")},
        lambda batch: {"sample": _noise(batch, 4, 32), "timestep": _times(batch)},
    ),
    "UNet3DConditionModel": (
        TWO | {"sample_size": 16, "cross_attention_dim": WIDTH, "attention_head_dim": 8}
        | {"down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D")}
        | {"up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D")},
        _frames,
    ),
    "UNetMotionModel": (
        TWO | {"sample_size": 16, "cross_attention_dim": WIDTH, "num_attention_heads": 2}
        | {"motion_num_attention_heads": 2}
        | {"down_block_types": ("CrossAttnDownBlockMotion", "DownBlockMotion")}
        | {"up_block_types": ("UpBlockMotion", "CrossAttnUpBlockMotion")},
        lambda batch: _frames(batch) | {"encoder_hidden_states": _text(3 * batch)},
    ),
    "UNetSpatioTemporalConditionModel": (
        {"sample_size": 16, "block_out_channels": (32, 64), "layers_per_block": 1, "cross_attention_dim": WIDTH}
        | {"num_attention_heads": (2, 2), "num_frames": 3, "addition_time_embed_dim": 8}
        | {"projection_class_embeddings_input_dim": 24}
        | {"down_block_types": ("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal")}
        | {"up_block_types": ("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal")},
        lambda batch: {
            "sample": _noise(batch, 3, 8, 16, 16),
            "timestep": _times(batch),
            "encoder_hidden_states": _noise(batch, 1, WIDTH),
            "added_time_ids": _noise(batch, 3),
        },
    ),
    "ControlNetModel": (
        TWO | {"cross_attention_dim": WIDTH, "attention_head_dim": 2, "conditioning_embedding_out_channels": (8, 16)}
        | {"down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D")},
        lambda batch: _guided(batch) | {"controlnet_cond": _noise(batch, 3, 32, 32)},
    ),
    "T2IAdapter": (
        {"in_channels": 3, "channels": [16, 32], "num_res_blocks": 1, "downscale_factor": 4},
        lambda batch: {"x": _noise(batch, 3, 16, 16)},
    ),
}  # fmt: skip
AUTOENCODERS: dict[str, tuple[dict[str, Any], Made]] = {
    "AutoencoderKL": (TWO | VAE, _image),
    "AsymmetricAutoencoderKL": (
        {"down_block_out_channels": (16, 32), "up_block_out_channels": (16, 32), "norm_num_groups": 8} | VAE,
        _image,
    ),
    "VQModel": (TWO | VAE | {"latent_channels": 4, "num_vq_embeddings": 16}, _image),
    "AutoencoderTiny": (
        {"encoder_block_out_channels": (16, 16), "decoder_block_out_channels": (16, 16)}
        | {"num_encoder_blocks": (1, 1), "num_decoder_blocks": (1, 1)},
        _image,
    ),
    "AutoencoderKLTemporalDecoder": (
        {"block_out_channels": (32, 64), "down_block_types": ("DownEncoderBlock2D",) * 2},
        lambda batch: _image(3 * batch) | {"num_frames": 3},
    ),
    "AutoencoderKLCogVideoX": (
        {"down_block_types": ("CogVideoXDownBlock3D",) * 2, "up_block_types": ("CogVideoXUpBlock3D",) * 2}
        | {
            "block_out_channels": (16, 16),
            "layers_per_block": 1,
            "norm_num_groups": 8,
            "temporal_compression_ratio": 2,
        },
        _film,
    ),
    "AutoencoderKLWan": (
        {"base_dim": 8, "z_dim": 16, "dim_mult": [1, 1], "num_res_blocks": 1, "temperal_downsample": [True]},
        _film,
    ),
    "AutoencoderOobleck": (
        {"encoder_hidden_size": 8, "downsampling_ratios": [2, 4], "decoder_channels": 8, "channel_multiples": [1, 2]}
        | {"decoder_input_channels": 4},
        lambda batch: {"sample": _noise(batch, 2, 64)},
    ),
    "AutoencoderDC": (
        {"in_channels": 3, "latent_channels": 4, "attention_head_dim": 8}
        | {
            "encoder_block_types": ("ResBlock", "EfficientViTBlock"),
            "decoder_block_types": ("ResBlock", "EfficientViTBlock"),
        }
        | {"encoder_block_out_channels": (8, 16), "decoder_block_out_channels": (8, 16)}
        | {"encoder_qkv_multiscales": ((), (5,)), "decoder_qkv_multiscales": ((), (5,))}
        | {"encoder_layers_per_block": (1, 1), "decoder_layers_per_block": (1, 1), "downsample_block_type": "conv"}
        | {"upsample_block_type": "interpolate", "decoder_norm_types": "rms_norm", "decoder_act_fns": "silu"},
        _image,
    ),
}
TRANSFORMERS: dict[str, tuple[dict[str, Any], Made]] = {
    "Transformer2DModel": (
        LAYER | {"in_channels": 16, "norm_num_groups": 8, "cross_attention_dim": WIDTH},
        lambda batch: {"hidden_states": _noise(batch, 16, 8, 8), "encoder_hidden_states": _text(batch)},
    ),
    "DiTTransformer2DModel": (
        LAYER | {"in_channels": 4, "sample_size": 8, "num_embeds_ada_norm": 1000},
        lambda batch: {
            "hidden_states": _noise(batch, 4, 8, 8),
            "timestep": _times(batch),
            "class_labels": torch.randint(0, 10, (batch,)),
        },
    ),
    "PixArtTransformer2DModel": (
        LAYER | {"sample_size": 8, "cross_attention_dim": 32, "caption_channels": WIDTH}
        | {"use_additional_conditions": False},
        lambda batch: _latents(4, 8, 8)(batch) | {"encoder_attention_mask": _mask(batch, torch.float32)},
    ),
    "SD3Transformer2DModel": (
        LAYER | {"sample_size": 8, "in_channels": 4, "out_channels": 4, "joint_attention_dim": WIDTH}
        | {"caption_projection_dim": 32, "pooled_projection_dim": 24},
        lambda batch: _latents(4, 8, 8)(batch) | {"pooled_projections": _noise(batch, 24)},
    ),
    "FluxTransformer2DModel": (
        LAYER | {"in_channels": 8, "num_single_layers": 1, "joint_attention_dim": WIDTH, "pooled_projection_dim": 24}
        | {"axes_dims_rope": (4, 4, 8)},
        lambda batch: _flux(batch) | {"pooled_projections": _noise(batch, 24)},
    ),
    "ChromaTransformer2DModel": (
        LAYER | {"in_channels": 8, "num_single_layers": 1, "joint_attention_dim": WIDTH, "axes_dims_rope": (4, 4, 8)}
        | {"approximator_num_channels": 8, "approximator_hidden_dim": 16, "approximator_layers": 1},
        _flux,
    ),
    "AuraFlowTransformer2DModel": (
        HEADS | {"sample_size": 8, "num_mmdit_layers": 1, "num_single_dit_layers": 1, "joint_attention_dim": WIDTH}
        | {"caption_projection_dim": 32, "pos_embed_max_size": 64},
        lambda batch: _latents(4, 8, 8)(batch) | {"timestep": torch.rand(batch)},
    ),
    "PriorTransformer": (
        LAYER | {"embedding_dim": 16, "num_embeddings": 7},
        lambda batch: {
            "hidden_states": _noise(batch, 16),
            "timestep": _times(batch),
            "proj_embedding": _noise(batch, 16),
            "encoder_hidden_states": _text(batch, 16),
            "attention_mask": _mask(batch),
        },
    ),
    "SanaTransformer2DModel": (
        LAYER | {"in_channels": 4, "out_channels": 4, "num_cross_attention_heads": 2, "cross_attention_head_dim": 16}
        | {"cross_attention_dim": 32, "caption_channels": WIDTH, "sample_size": 8},
        _latents(4, 8, 8),
    ),
    "CogVideoXTransformer3DModel": (
        LAYER | {"in_channels": 4, "out_channels": 4, "time_embed_dim": 8, "text_embed_dim": WIDTH, "sample_width": 8}
        | {"sample_height": 8, "sample_frames": 9, "max_text_seq_length": 7},
        _latents(3, 4, 8, 8),
    ),
    "WanTransformer3DModel": (
        LAYER | {"in_channels": 4, "out_channels": 4, "text_dim": WIDTH, "freq_dim": 16, "ffn_dim": 32},
        _latents(4, 3, 8, 8),
    ),
    "LTXVideoTransformer3DModel": (
        LAYER | {"in_channels": 4, "out_channels": 4, "cross_attention_dim": 32, "caption_channels": WIDTH},
        lambda batch: _latents(32, 4)(batch)
        | {"encoder_attention_mask": _mask(batch), "num_frames": 2, "height": 4, "width": 4},
    ),
    "MochiTransformer3DModel": (
        LAYER | {"in_channels": 4, "pooled_projection_dim": 16, "text_embed_dim": WIDTH, "time_embed_dim": 8}
        | {"max_sequence_length": 7},
        lambda batch: _latents(4, 2, 8, 8)(batch) | {"encoder_attention_mask": _mask(batch)},
    ),
    "LatteTransformer3DModel": (
        LAYER | {"in_channels": 4, "sample_size": 8, "patch_size": 2, "cross_attention_dim": 32}
        | {"caption_channels": WIDTH}
        | {"norm_type": "ada_norm_single", "num_embeds_ada_norm": 1000, "attention_bias": True, "video_length": 2},
        _latents(4, 2, 8, 8),
    ),
    "StableAudioDiTModel": (
        LAYER | {"sample_size": 8, "in_channels": 4, "out_channels": 4, "num_key_value_attention_heads": 2}
        | {"cross_attention_dim": 32, "time_proj_dim": 16, "global_states_input_dim": 8}
        | {"cross_attention_input_dim": WIDTH},
        lambda batch: _latents(4, 8)(batch)
        | {"timestep": torch.rand(batch), "global_hidden_states": _noise(batch, 1, 8)}
        | {"rotary_embedding": torch.randn(2, 9, 8)},
    ),
    "HunyuanVideoTransformer3DModel": (
        LAYER | {"in_channels": 4, "out_channels": 4, "num_single_layers": 1, "num_refiner_layers": 1}
        | {"text_embed_dim": WIDTH, "pooled_projection_dim": 8, "rope_axes_dim": (4, 4, 8)},
        lambda batch: _latents(4, 1, 8, 8)(batch)
        | {"encoder_attention_mask": _mask(batch), "pooled_projections": _noise(batch, 8)}
        | {"guidance": torch.rand(batch)},
    ),
    "Lumina2Transformer2DModel": (
        {"sample_size": 8, "in_channels": 4, "hidden_size": 24, "num_layers": 1, "num_refiner_layers": 1}
        | {"cap_feat_dim": WIDTH}
        | {"num_attention_heads": 2, "num_kv_heads": 1, "multiple_of": 16, "axes_dim_rope": (4, 4, 4)},
        lambda batch: _latents(4, 8, 8)(batch) | {"encoder_attention_mask": _mask(batch)},
    ),
}  # fmt: skip
SCHEDULERS: dict[str, dict[str, Any]] = {
    "DDPMScheduler": {},
    "DDIMScheduler": {},
    "PNDMScheduler": {"skip_prk_steps": True},
    "EulerDiscreteScheduler": {},
    "DPMSolverMultistepScheduler": {},
    "FlowMatchEulerDiscreteScheduler": {},
}
MODELS = UNETS | AUTOENCODERS | TRANSFORMERS


class Denoising(torch.nn.Module):
    """The whole loop over a scheduler's steps, of a model that is one convolution."""

    def __init__(self, scheduler: Any) -> None:
        super().__init__()
        self.scheduler = scheduler
        self.model = torch.nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, sample: torch.Tensor) -> torch.Tensor:
        self.scheduler.set_timesteps(3)
        scaled = getattr(self.scheduler, "scale_model_input", lambda sample, t: sample)
        for t in self.scheduler.timesteps:
            sample = self.scheduler.step(self.model(scaled(sample, t)), t, sample).prev_sample
        return sample


def version() -> str:
    import diffusers

    return str(diffusers.__version__)


def families() -> dict[str, str]:
    """Return the names of the classes, and what kind each is of."""
    kinds = {"UNet": UNETS, "autoencoder": AUTOENCODERS, "transformer": TRANSFORMERS, "scheduler": SCHEDULERS}
    return {name: kind for kind, names in kinds.items() for name in names}


def built(name: str) -> Case:
    import diffusers

    torch.manual_seed(0)
    made = getattr(diffusers, name)
    if name in SCHEDULERS:
        model: torch.nn.Module = Denoising(made(**SCHEDULERS[name]))
        inputs: Made = _image
    else:
        config, inputs = MODELS[name]
        model = made(**config)
        _stir(model)
    first, *others = map(inputs, BATCHES)
    with torch.no_grad():
        model.eval()(**first)
    return Case(model, first, tuple(others))


def _stir(model: torch.nn.Module) -> None:
    """Give random numbers to weights that begin as zeros: what is behind them would count for nothing."""
    for p in model.parameters():
        if p.numel() and not p.detach().any():
            torch.nn.init.normal_(p, std=0.1)
