"""A unit in Triton -> machine code in memory: kernels are compiled side by side in processes without torch."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from torch import Tensor

from intarsia_ir.errors import InternalError, UnsupportedError
from intarsia_ir.records import KernelSource, Target
from intarsia_runtime import triton_pool

__all__ = ["compile_kernels", "prepare", "triton_version"]


def prepare(inputs: Iterable[object]) -> None:
    """Start a process that will compile kernels, where tensors are on a GPU: it is ready when the kernels are.

    Args:
        inputs: Inputs of a program that is about to be recorded, tensors and numbers.

    Raises:
        UnsupportedError: `runtime.no_process`.
    """
    if any(isinstance(x, Tensor) and x.is_cuda for x in inputs) and importlib.util.find_spec("triton") is not None:
        triton_pool.prepare()


def compile_kernels(source: KernelSource, target: Target, *, folder: Path, timeout_s: float) -> dict[str, Any]:
    """Compile every kernel of a unit into `folder` and return, for each, what a launch must know.

    Args:
        source: A unit in Triton.
        target: Its `isa` names the architecture: `"sm_90"`, or `"gfx942"`.
        folder: Private scratch folder; gets `<kernel>.bin`.
        timeout_s: Seconds for all of it.

    Raises:
        UnsupportedError: `runtime.no_triton`, `runtime.compiler_timeout`.
        InternalError: `runtime.triton_failed`, with Triton's own message.
    """
    (folder / "kernels.py").write_text(source.text, encoding="utf-8")
    names = sorted({launch.entry for launch in source.launches})
    n_workers = min(len(names), max(1, len(os.sched_getaffinity(0))), 16)
    # kernels of one unit differ in size; dealing them out in turn spreads neighbours, which are alike
    shares = [names[k::n_workers] for k in range(n_workers)]
    request = {
        "folder": str(folder.resolve()),
        "architecture": _architecture(target.isa),
        "shares": shares,
        "environment": _environment(),
    }
    for k, status in enumerate(triton_pool.run(request, timeout_s=timeout_s)):
        if status:
            message = (folder / f"worker{k}.log").read_text(errors="replace").strip()[-4000:] or "it printed nothing"
            raise InternalError(f"Triton failed with status {status}:\n{message}", code="runtime.triton_failed")
    return {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in names}


@functools.cache
def triton_version() -> str:
    """Return the version of the Triton that would compile, without importing it.

    Raises:
        UnsupportedError: `runtime.no_triton`: it isn't installed.
    """
    if importlib.util.find_spec("triton") is None:
        raise UnsupportedError(
            "Triton is not installed, and kernels for a GPU need it",
            code="runtime.no_triton",
            hints=("pip install triton",),
        )
    return metadata.version("triton")


def _architecture(isa: str) -> tuple[str, str, str]:
    """Return Triton's words for an instruction set: backend, architecture, threads in a warp."""
    if isa.startswith("sm_"):
        return "cuda", isa.removeprefix("sm_"), "32"
    return "hip", isa, "64"


def _environment() -> dict[str, str]:
    """Triton's own cache would keep every kernel a second time."""
    kept = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    return {**kept, "TRITON_ALWAYS_COMPILE": "1", "TRITON_CACHE_DIR": "triton-cache"}
