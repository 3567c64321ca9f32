"""Convolutions with their usual tails on a GPU beside eager and torch.compile: `python benchmarks/convolutions.py`.

Thirty shapes of public models, in float32 with TF32 (torch's default), in float32 without, and in bfloat16:
`--type tf32|exact|bf16`. One JSON object a shape, also in `$OUT` where there is such a folder, from which a second run
goes on. Times are medians of CUDA events in milliseconds of three calls, interleaved in rounds in one process, under
`no_grad`; results are checked against eager first. `--alone` leaves torch.compile out.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), *(str(p) for p in ROOT.glob("packages/*/src"))]

import torch  # noqa: E402  (after the source tree)
import torch.nn.functional as F  # noqa: E402
import triton  # noqa: E402
from torch import nn  # noqa: E402

ROUNDS = 9
WARM_UP = 3
CALLS = 3
TYPES = {"tf32": torch.float32, "exact": torch.float32, "bf16": torch.bfloat16}
# distance from eager, relative to its norm: two kernels of the library may round products differently
FAR = {"tf32": 2e-3, "exact": 1e-5, "bf16": 1e-2}

Tail = Callable[["Convolution", torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Case:
    """A convolution over random images.

    Args:
        name: Of the model that it is from, and what it is there.
        shape: Shape of the images: batch, channels, sides.
        out: Channels of the result.
        window: Side of the window.
        tail: What follows.
        stride: Step of the window.
        padding: Points around the image; None: half of the window.
        groups: Groups of channels.
        transposed: Whether it is a transposed one.
        bias: Whether it has a bias.
    """

    name: str
    shape: tuple[int, ...]
    out: int
    window: int
    tail: Tail
    stride: int = 1
    padding: int | None = None
    groups: int = 1
    transposed: bool = False
    bias: bool = True


class Convolution(nn.Module):
    """A convolution, the norms that a tail may use, and the tail."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        dims = len(case.shape) - 2
        kinds = {(2, False): nn.Conv2d, (3, False): nn.Conv3d, (2, True): nn.ConvTranspose2d}
        kind: Any = {**kinds, (3, True): nn.ConvTranspose3d}[dims, case.transposed]
        padding = case.window // 2 if case.padding is None else case.padding
        how = {"stride": case.stride, "padding": padding, "groups": case.groups, "bias": case.bias}
        self.convolution = kind(case.shape[1], case.out, case.window, **how)
        self.batch_norm = (nn.BatchNorm2d if dims == 2 else nn.BatchNorm3d)(case.out)
        self.group_norm = nn.GroupNorm(8, case.out)
        self.tail = case.tail

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tail(self, self.convolution(x))


def relu(m: Convolution, x: torch.Tensor) -> torch.Tensor:
    return F.relu(x)


def norm_relu(m: Convolution, x: torch.Tensor) -> torch.Tensor:
    return F.relu(m.batch_norm(x))


def norm_silu(m: Convolution, x: torch.Tensor) -> torch.Tensor:
    return F.silu(m.batch_norm(x))


def norm_hardswish(m: Convolution, x: torch.Tensor) -> torch.Tensor:
    return F.hardswish(m.batch_norm(x))


def norm_only(m: Convolution, x: torch.Tensor) -> torch.Tensor:
    return m.batch_norm(x)


def group_silu(m: Convolution, x: torch.Tensor) -> torch.Tensor:
    return F.silu(m.group_norm(x))


def group_gelu(m: Convolution, x: torch.Tensor) -> torch.Tensor:
    return F.gelu(m.group_norm(x))


def relu_pool(m: Convolution, x: torch.Tensor) -> torch.Tensor:
    return F.max_pool2d(F.relu(x), 2)


def two_mish(m: Convolution, x: torch.Tensor) -> torch.Tensor:
    return F.mish(F.mish(x))


def scaled_min(m: Convolution, x: torch.Tensor) -> torch.Tensor:
    return (x * 2.0).amin(1, keepdim=True)


def gelu_mean(m: Convolution, x: torch.Tensor) -> torch.Tensor:
    return F.adaptive_avg_pool2d(F.gelu(x), 1).flatten(1)


def hardswish_mean(m: Convolution, x: torch.Tensor) -> torch.Tensor:
    return F.hardswish(x).mean((2, 3, 4))


def patches(m: Convolution, x: torch.Tensor) -> torch.Tensor:
    return x.flatten(2).transpose(1, 2)


CASES = (
    Case("resnet stem", (64, 3, 224, 224), 64, 7, norm_relu, stride=2, bias=False),
    Case("resnet 3x3 of 64", (64, 64, 56, 56), 64, 3, norm_relu, bias=False),
    Case("resnet 3x3 of 256", (64, 256, 14, 14), 256, 3, norm_relu, bias=False),
    Case("resnet 1x1 to 256", (64, 64, 56, 56), 256, 1, norm_relu, bias=False),
    Case("resnet 1x1 of 1024", (64, 1024, 14, 14), 256, 1, norm_relu, bias=False),
    Case("resnet step", (64, 128, 56, 56), 128, 3, norm_relu, stride=2, bias=False),
    Case("resnext grouped", (64, 256, 28, 28), 256, 3, norm_relu, groups=32, bias=False),
    Case("vgg 64", (32, 64, 112, 112), 64, 3, relu),
    Case("vgg 256", (32, 256, 56, 56), 256, 3, relu),
    Case("vgg 512 pooled", (32, 512, 28, 28), 512, 3, relu_pool),
    Case("squeezenet 1x1", (64, 128, 55, 55), 16, 1, relu),
    Case("squeezenet 3x3", (64, 16, 55, 55), 64, 3, relu),
    Case("mish twice", (64, 8, 256, 256), 64, 3, two_mish, padding=0),
    Case("least channel", (16, 64, 256, 256), 128, 3, scaled_min, padding=0),
    Case("gelu and mean", (128, 8, 256, 256), 64, 3, gelu_mean, padding=0),
    Case("mobilenet depthwise", (64, 96, 56, 56), 96, 3, norm_hardswish, groups=96, bias=False),
    Case("mobilenet depthwise step", (64, 144, 56, 56), 144, 3, norm_silu, stride=2, groups=144, bias=False),
    Case("mobilenet 1x1 up", (64, 24, 56, 56), 144, 1, norm_silu, bias=False),
    Case("mobilenet 1x1 down", (64, 96, 56, 56), 24, 1, norm_only, bias=False),
    Case("efficientnet depthwise", (64, 240, 28, 28), 240, 5, norm_silu, groups=240, bias=False),
    Case("convnext depthwise", (64, 96, 56, 56), 96, 7, relu, groups=96),
    Case("vit patches", (64, 3, 224, 224), 768, 16, patches, stride=16, padding=0),
    Case("u-net 3x3", (8, 64, 128, 128), 64, 3, group_silu),
    Case("u-net 1x1", (8, 128, 64, 64), 64, 1, group_silu),
    Case("transposed 4x4", (64, 64, 32, 32), 32, 4, norm_relu, stride=2, padding=1, transposed=True),
    Case("transposed 3x3", (32, 128, 64, 64), 64, 3, group_gelu, stride=2, padding=1, transposed=True),
    Case("3d", (16, 16, 16, 56, 56), 32, 3, norm_relu),
    Case("3d and mean", (64, 3, 16, 64, 64), 16, 3, hardswish_mean),
    Case("3d 1x1", (16, 64, 8, 28, 28), 128, 1, norm_relu),
    Case("3d transposed", (32, 32, 8, 16, 16), 16, 3, group_gelu, stride=2, padding=1, transposed=True),
)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these shapes")
    parser.add_argument("--type", default="tf32", choices=TYPES, help="type of the images and weights")
    parser.add_argument("--alone", action="store_true", help="without torch.compile")
    options = parser.parse_args(arguments)
    torch.backends.cudnn.conv.fp32_precision = "ieee" if options.type == "exact" else "tf32"
    path = Path(os.environ["OUT"]) / f"convolutions_{options.type}.json" if "OUT" in os.environ else None
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path is not None and path.exists() else []
    done = {row["name"] for row in rows}
    with tempfile.TemporaryDirectory() as folder:
        for variable in ("INTARSIA_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
            os.environ[variable] = f"{folder}/{variable}"
        for case in CASES:
            if case.name in done or (options.names and case.name not in options.names):
                continue
            rows.append(row(case, options.type, peer=not options.alone))
            print(json.dumps(rows[-1]), flush=True)
            if path is not None:
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    for line in summary(rows):
        print(line)
    return int(any("error" in r for r in rows))


def row(case: Case, kind: str, *, peer: bool) -> dict[str, Any]:
    """Measure one shape; a failure is a row as well."""
    found = {"name": case.name, "type": kind, "card": torch.cuda.get_device_name(), "torch": torch.__version__}
    try:
        with torch.no_grad():
            return found | {"triton": triton.__version__} | measured(case, kind, peer=peer)
    except Exception as error:  # the others must still be measured; the failure is a row and the exit status
        return found | {"error": f"{type(error).__name__}: {error}"[:3000]}


def measured(case: Case, kind: str, *, peer: bool) -> dict[str, Any]:
    """Check one shape against eager, and time it."""
    import intarsia

    torch.manual_seed(0)
    model = Convolution(case).cuda().to(TYPES[kind]).eval()
    x = torch.randn(case.shape, device="cuda", dtype=TYPES[kind])
    intarsia.reset()
    calls: dict[str, Callable[..., torch.Tensor]] = {"eager": model}
    calls["ours"] = intarsia.compile(model, options={"on_error": "raise"})
    expected, actual = model(x), calls["ours"](x)
    assert (actual.dtype, actual.shape, actual.stride()) == (expected.dtype, expected.shape, expected.stride())
    far = float((actual - expected).float().norm() / expected.float().norm())
    assert far <= FAR[kind], f"{far:.3g} from eager, relative to its norm"
    del expected, actual
    stats = intarsia.stats()
    if peer:
        torch._dynamo.reset()
        calls["inductor"] = torch.compile(model, dynamic=False)
    times = interleaved(calls, x)
    result: dict[str, Any] = {f"{name}_ms": round(statistics.median(t), 4) for name, t in times.items()}
    result |= {"kernels": stats.kernels_generated, "externs": stats.extern_calls, "fallbacks": stats.fallbacks}
    for key in set(times) - {"ours"}:
        ratios = sorted(t / o for t, o in zip(times[key], times["ours"], strict=True))
        result[f"against_{key}"] = [round(r, 3) for r in (statistics.median(ratios), ratios[1], ratios[-2])]
    return result


def interleaved(calls: dict[str, Callable[..., torch.Tensor]], x: torch.Tensor) -> dict[str, list[float]]:
    """Return milliseconds of a call, a round and name."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(ROUNDS + WARM_UP):
        for name, call in calls.items():
            torch.cuda.synchronize()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            for _ in range(CALLS):
                call(x)
            end.record()
            end.synchronize()
            if number >= WARM_UP:
                times[name].append(start.elapsed_time(end) / CALLS)
    return times


def summary(rows: list[dict[str, Any]]) -> list[str]:
    lines = []
    for key in ("eager", "inductor"):
        ratios = {r["name"]: min(2.0, r[f"against_{key}"][0]) for r in rows if f"against_{key}" in r}
        if ratios:
            mean = math.exp(statistics.fmean(map(math.log, ratios.values())))
            least = min(ratios, key=ratios.__getitem__)
            lines.append(f"against {key}, geomean over {len(ratios)}, at most 2 each: {mean:.3f}")
            lines.append(f"  least {ratios[least]} ({least}); below 0.95: {sum(r < 0.95 for r in ratios.values())}")
    failed = [r["name"] for r in rows if "error" in r]
    return [*lines, *([f"failed: {', '.join(failed)}"] if failed else [])]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
