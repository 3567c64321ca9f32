"""How much memory the first call of a model of 12 layers takes at its peak, above eager, on the CPU.

The peak is that of the resident memory of this process, which the kernel keeps and which is begun anew before each
call; compilers run in processes of their own and aren't counted.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import multiprocessing
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

import intarsia

__all__ = ["Peak", "main", "measured"]


@dataclass(frozen=True)
class Peak:
    """What was measured, in bytes.

    Args:
        parameters: Of the model.
        eager: Peak of a call in eager, above what was resident before it.
        compiled: The same of the first call of the compiled model.
    """

    parameters: int
    eager: int
    compiled: int

    @property
    def above(self) -> float:
        """By how many times its parameters the call that compiles is above eager."""
        return (self.compiled - self.eager) / self.parameters


def model_of(width: int) -> nn.Module:
    """Return 12 transformer layers, without dropout."""
    layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)


def peak_of(call: Callable[[], None]) -> int:
    """Return by how many bytes the resident memory grew while `call` ran, at most."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what is resident now
    before = _status("VmRSS")
    call()
    return _status("VmHWM") - before


def _status(word: str) -> int:
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[word].split()[0]) << 10


def measured(width: int, training: bool) -> Peak:
    """Return the peaks of a call of the model, with its backward pass where it is trained."""
    torch.manual_seed(0)
    model = model_of(width).train(training)
    x = torch.randn(2, 64, width)
    expected = torch.zeros(())

    def step(run: Callable[..., torch.Tensor]) -> None:
        nonlocal expected
        with torch.set_grad_enabled(training):
            result = run(x)
            if training:
                result.square().mean().backward()
        expected = result.detach()
        model.zero_grad(set_to_none=True)

    step(model)  # what libraries allocate once
    eager = peak_of(lambda: step(model))
    told, fast = expected, intarsia.compile(model, options={"on_error": "raise"})
    compiled = peak_of(lambda: step(fast))
    torch.testing.assert_close(expected, told, rtol=1e-4, atol=1e-4)
    return Peak(sum(p.nbytes for p in model.parameters()), eager, compiled)


def main(arguments: list[str]) -> int:
    """Print the peaks of inference and of a step of training; more than 2 times the parameters is too much."""
    parser = argparse.ArgumentParser(prog="python -m integration.survival peak")
    parser.add_argument("--width", type=int, default=512)
    given = parser.parse_args(arguments)
    peaks = {}
    with tempfile.TemporaryDirectory() as name:
        os.environ["INTARSIA_CACHE_DIR"] = name
        for training in (False, True):
            with multiprocessing.get_context("spawn").Pool(1) as process:  # with what a process pays once
                peak = peaks[training] = process.apply(measured, (given.width, training))
            print(
                f"{'training' if training else 'inference'}: parameters {peak.parameters >> 20} MiB, eager's peak "
                f"{peak.eager >> 20} MiB, compiled {peak.compiled >> 20} MiB: {peak.above:.2f} times them above eager"
            )
    return any(peak.above > 2 for peak in peaks.values())
