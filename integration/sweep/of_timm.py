"""Models of timm: the smallest of each family, small images, and of each run of alike blocks the first one only."""

from __future__ import annotations

import inspect
from itertools import zip_longest
from typing import Any

import torch

from integration.sweep.cases import Case, taken
from integration.sweep.stubs import stub_torchvision

__all__ = ["built", "families", "version"]

# the modules of timm.models, and small models of each
NAMES = {
    "beit": "beit_base_patch16_224 beitv2_base_patch16_224",
    "byoanet": "botnet26t_256 halonet26t lambda_resnet26t sebotnet33ts_256",
    "byobnet": "test_byobnet resnext26ts gernet_s repvgg_a0 mobileone_s0 gcresnext26ts bat_resnext26ts",
    "cait": "cait_xxs24_224",
    "coat": "coat_lite_tiny coat_tiny",
    "convit": "convit_tiny",
    "convmixer": "convmixer_768_32",
    "convnext": "test_convnext test_convnext2 convnext_atto convnextv2_atto convnext_zepto_rms",
    "cpubone": "cpubone_nano",
    "crossvit": "crossvit_tiny_240 crossvit_9_dagger_240",
    "csatv2": "csatv2",
    "cspnet": "cspresnet50 cs3darknet_s darknet17 cspdarknet53",
    "cspnext": "cspnext_tiny",
    "davit": "davit_tiny",
    "deepseek_vit": "deepseek_vit_412m",
    "deit": "deit_tiny_patch16_224 deit_tiny_distilled_patch16_224 deit3_small_patch16_224",
    "densenet": "densenet121 densenetblur121d",
    "dla": "dla46_c dla34",
    "dpn": "dpn48b dpn68",
    "edgenext": "edgenext_xx_small",
    "efficientformer": "efficientformer_l1",
    "efficientformer_v2": "efficientformerv2_s0",
    "efficientnet": "test_efficientnet test_efficientnet_gn efficientnet_lite0 mobilenetv2_035 mnasnet_small mixnet_s "
    "tinynet_e tf_efficientnetv2_b0 efficientnet_cc_b0_4e mobilenetv1_100",
    "efficientvim": "efficientvim_m1",
    "efficientvit_mit": "efficientvit_b0",
    "efficientvit_msra": "efficientvit_m0",
    "eva": "eva02_tiny_patch14_224 vit_small_patch16_rope_224 vit_tiny_patch16_dinov3_qkvb "
    "vit_pe_core_tiny_patch16_384",
    "fasternet": "fasternet_t0",
    "fastvit": "fastvit_t8 fastvit_sa12",
    "focalnet": "focalnet_tiny_srf",
    "gcvit": "gcvit_xxtiny",
    "gemma4_vit": "gemma4_vit_167m",
    "ghostnet": "ghostnet_050 ghostnetv2_100 ghostnetv3_050",
    "hardcorenas": "hardcorenas_a",
    "hgnet": "hgnet_tiny hgnetv2_b0",
    "hiera": "hiera_tiny_224",
    "hieradet_sam2": "hieradet_small",
    "hrnet": "hrnet_w18_small",
    "iformer": "iformer_t",
    "inception_next": "inception_next_atto",
    "inception_resnet_v2": "inception_resnet_v2",
    "inception_v3": "inception_v3",
    "inception_v4": "inception_v4",
    "lcnetv2": "lcnetv2_small",
    "levit": "levit_128s levit_conv_128s",
    "lowformer": "lowformer_b0",
    "mambaout": "test_mambaout mambaout_femto",
    "maxxvit": "test_coatnet test_maxvit coatnet_pico_rw_224 maxvit_pico_rw_256",
    "metaformer": "poolformer_s12 poolformerv2_s12 caformer_s18 convformer_s18",
    "mlp_mixer": "mixer_s32_224 resmlp_12_224 gmlp_ti16_224 gmixer_12_224",
    "mobilenetv3": "mobilenetv3_small_050 lcnet_035 mobilenetv4_conv_small_035 mobilenetv4_hybrid_medium_075 "
    "tf_mobilenetv3_small_minimal_100 fbnetv3_b",
    "mobilenetv5": "mobilenetv5_300m",
    "mobilevit": "mobilevit_xxs mobilevitv2_050",
    "mvitv2": "mvitv2_tiny mvitv2_small_cls",
    "naflexvit": "naflexvit_base_patch16_gap",
    "nasnet": "nasnetalarge",
    "nest": "nest_tiny",
    "nextvit": "nextvit_small",
    "nfnet": "test_nfnet nf_regnet_b0 nf_resnet26 eca_nfnet_l0",
    "pit": "pit_ti_224 pit_ti_distilled_224",
    "pnasnet": "pnasnet5large",
    "pvt_v2": "pvt_v2_b0 pvt_v2_b2_li",
    "qwen3_vit": "qwen3_vit_88m",
    "rdnet": "rdnet_tiny",
    "regnet": "regnetx_002 regnety_002 regnetz_005 regnetv_040",
    "repghost": "repghostnet_050",
    "repvit": "repvit_m0_9",
    "res2net": "res2net50_48w_2s res2net50d",
    "resnest": "resnest14d resnest26d",
    "resnet": "test_resnet resnet10t resnet18d seresnet18 ecaresnet26t resnetblur18 resnetaa34d resnext50_32x4d "
    "resnet50_gn",
    "resnetv2": "resnetv2_18 resnetv2_50x1_bit resnetv2_50d_evos resnetv2_50d_frn",
    "rexnet": "rexnet_100 rexnetr_100",
    "selecsls": "selecsls42",
    "senet": "legacy_seresnet18",
    "sequencer": "sequencer2d_s",
    "shvit": "shvit_s1",
    "sknet": "skresnet18",
    "starnet": "starnet_s050",
    "swiftformer": "swiftformer_xs",
    "swin_transformer": "swin_tiny_patch4_window7_224 swin_s3_tiny_224",
    "swin_transformer_v2": "swinv2_tiny_window8_256",
    "swin_transformer_v2_cr": "swinv2_cr_tiny_224 swinv2_cr_tiny_ns_224",
    "tiny_vit": "tiny_vit_5m_224",
    "tnt": "tnt_s_patch16_224 tnt_s_legacy_patch16_224",
    "tresnet": "tresnet_m",
    "twins": "twins_pcpvt_small twins_svt_small",
    "vgg": "vgg11 vgg11_bn",
    "visformer": "visformer_tiny",
    "vision_transformer": "test_vit test_vit2 test_vit3 test_vit4 vit_tiny_patch16_224 vit_small_patch14_reg4_dinov2 "
    "vit_xsmall_patch16_clip_224 vit_base_patch32_siglip_256 vit_small_patch16_36x1_224 vit_pwee_patch16_reg1_gap_256",
    "vision_transformer_hybrid": "vit_tiny_r_s16_p8_224 vit_small_resnet26d_224",
    "vision_transformer_relpos": "test_vit_relpos vit_relpos_small_patch16_224 vit_srelpos_small_patch16_224",
    "vision_transformer_sam": "samvit_base_patch16_224",
    "vitamin": "vitamin_small_224",
    "volo": "volo_d1_224",
    "vovnet": "ese_vovnet19b_slim_dw vovnet39a",
    "xception": "legacy_xception",
    "xception_aligned": "xception41 xception41p",
    "xcit": "xcit_nano_12_p16_224",
}
SIDES = (64, 56, 96, 128, 192, 224, 240, 256)  # pixels
BATCHES = (2, 3, 5)


def version() -> str:
    stub_torchvision()
    import timm

    return str(timm.__version__)


def families() -> dict[str, str]:
    """Return the names of the models, the first of each family first, and the module of timm that each is of."""
    turns = zip_longest(*([(name, family) for name in names.split()] for family, names in NAMES.items()))
    return dict(pair for turn in turns for pair in turn if pair is not None)


def built(name: str) -> Case:
    for side in SIDES:
        for thin in (True, False):
            torch.manual_seed(0)
            if (model := _made(name, side, thin)) is None:
                break
            argument = next(iter(inspect.signature(model.forward).parameters))
            first, *others = ({argument: torch.randn(batch, 3, side, side)} for batch in BATCHES)
            if taken(model, first):
                return Case(model, first, tuple(others))
    raise ValueError(f"{name} takes images of none of {SIDES}")


def _made(name: str, side: int, thin: bool) -> torch.nn.Module | None:
    """Return the model, with ten classes; None where images can't be of that size."""
    import timm

    try:
        try:
            model = timm.create_model(name, num_classes=10, img_size=side)
        except TypeError:  # it has no `img_size`: any will do
            model = timm.create_model(name, num_classes=10)
    except (AssertionError, RuntimeError, ValueError):
        return None
    model = model.eval()
    if thin:
        for within in list(model.modules()):
            if isinstance(within, (torch.nn.Sequential, torch.nn.ModuleList)):
                _thin(within)
    return model


def _thin(blocks: torch.nn.Sequential | torch.nn.ModuleList) -> None:
    """Leave out blocks that are like the one before them."""
    kept: list[torch.nn.Module] = []
    for block in blocks:
        if not kept or _form(block) != _form(kept[-1]):
            kept.append(block)
    if len(kept) < len(blocks):
        del blocks[len(kept) :]
        for number, block in enumerate(kept):
            blocks[number] = block


def _form(block: torch.nn.Module) -> Any:
    """Return what makes a block do what it does, but for its weights: classes, shapes and plain attributes."""
    plain = [
        {key: v for key, v in vars(m).items() if isinstance(v, (bool, float, int, str, tuple))} for m in block.modules()
    ]
    return repr(block), [tuple(p.shape) for p in block.parameters()], plain
