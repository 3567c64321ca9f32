"""The whole models that GPU benchmarks time, with random weights: a name gives a float32 module and its inputs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

__all__ = ["IMAGES", "ZOO", "Made"]

IMAGES = 32
Made = tuple[nn.Module, dict[str, torch.Tensor]]


def bert() -> Made:
    """Return BERT base over i64[16, 512]."""
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig()), {"input_ids": tokens(30522, 16)}


def gpt2() -> Made:
    """Return GPT-2 with 12 layers over i64[4, 512]."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(use_cache=False)), {"input_ids": tokens(50257, 4)}


def t5() -> Made:
    """Return T5 small over i64[16, 512] and i64[16, 128]."""
    from transformers import T5Config, T5ForConditionalGeneration

    model = T5ForConditionalGeneration(T5Config(use_cache=False, dropout_rate=0.0))
    return model, {"input_ids": tokens(32128, 16), "decoder_input_ids": tokens(32128, 16, 128)}


def llama() -> Made:
    """Return Llama with 8 layers and hidden size 1024 over i64[4, 512]."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=8,
        num_attention_heads=16,
        num_key_value_heads=16,
        use_cache=False,
    )
    return LlamaForCausalLM(config), {"input_ids": tokens(32000, 4)}


def mixtral() -> Made:
    """Return Mixtral with 4 layers of 8 experts and hidden size 512 over i64[4, 512]."""
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=32000,
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        num_local_experts=8,
        use_cache=False,
    )
    return MixtralForCausalLM(config), {"input_ids": tokens(32000, 4)}


def whisper() -> Made:
    """Return Whisper tiny over f32[8, 80, 3000] and i64[8, 64]."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    model = WhisperForConditionalGeneration(WhisperConfig(use_cache=False))
    sound = torch.randn(8, 80, 3000, device="cuda")
    return model, {"input_features": sound, "decoder_input_ids": tokens(51865, 8, 64)}


def squeezenet() -> Made:
    """Return SqueezeNet 1.0 over f32[32, 3, 224, 224]."""
    import torchvision

    return torchvision.models.squeezenet1_0(weights=None), {"x": images()}


def unet() -> Made:
    """Return a U-Net of four levels, 32 to 256 channels, over f32[8, 3, 256, 256]."""
    return UNet(), {"x": images(8, 256)}


def of_timm(name: str, argument: str = "x") -> Callable[[], Made]:
    """Return what makes a model of timm over f32[32, 3, 224, 224]."""

    def make() -> Made:
        import timm

        return timm.create_model(name), {argument: images()}

    return make


class UNet(nn.Module):
    """Two convolutions with batch norms a level, pooled on the way down, transposed convolutions on the way up."""

    def __init__(self, widths: tuple[int, ...] = (32, 64, 128, 256)) -> None:
        super().__init__()
        pairs = list(zip((3, *widths), widths, strict=False))
        self.down = nn.ModuleList(level(n_in, n_out) for n_in, n_out in pairs)
        ups = list(zip(reversed(widths[1:]), reversed(widths[:-1]), strict=True))
        self.widen = nn.ModuleList(nn.ConvTranspose2d(n_in, n_out, 2, stride=2) for n_in, n_out in ups)
        self.up = nn.ModuleList(level(2 * n_out, n_out) for _, n_out in ups)
        self.last = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map f32[batch, 3, side, side] to f32[batch, 2, side, side]; the side is a multiple of 8."""
        kept = []
        for number, block in enumerate(self.down):
            x = block(nn.functional.max_pool2d(x, 2) if number else x)
            kept.append(x)
        for widen, block, beside in zip(self.widen, self.up, reversed(kept[:-1]), strict=True):
            x = block(torch.cat((beside, widen(x)), dim=1))
        return self.last(x)


def level(n_in: int, n_out: int) -> nn.Module:
    layers: list[nn.Module] = []
    for n in (n_in, n_out):
        layers += [nn.Conv2d(n, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU()]
    return nn.Sequential(*layers)


def tokens(vocabulary: int, rows: int, length: int = 512) -> torch.Tensor:
    return torch.randint(0, vocabulary, (rows, length), device="cuda")


def images(rows: int = IMAGES, side: int = 224) -> torch.Tensor:
    return torch.randn(rows, 3, side, side, device="cuda")


ZOO: dict[str, Callable[[], Made]] = {
    "bert": bert,
    "gpt2": gpt2,
    "t5": t5,
    "llama": llama,
    "vit": of_timm("vit_base_patch16_224"),
    "resnet50": of_timm("resnet50"),
    "mobilenetv3": of_timm("mobilenetv3_large_100"),
    "efficientnet_b0": of_timm("efficientnet_b0"),
    "convnext_t": of_timm("convnext_tiny"),
    "swin_t": of_timm("swin_tiny_patch4_window7_224"),
    "vgg16": of_timm("vgg16"),
    "squeezenet": squeezenet,
    "unet": unet,
    "whisper": whisper,
    "mixtral": mixtral,
}
