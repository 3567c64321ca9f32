"""What kernels are compiled for: the machine that runs this process."""

from __future__ import annotations

import functools
import math
import os
import platform
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from intarsia_ir.dtypes import dtype_from_name
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Machine, Target
from intarsia_ir.target import nearest_machine
from intarsia_runtime.compiler import words_of

__all__ = ["convolved_by_matrix_units", "cpu_features", "detect_target", "nan_gelu", "packed_by_library"]

COMPILERS = ("g++", "clang++")
AVX512 = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "fma"})
AVX2 = frozenset({"avx2", "fma", "f16c"})


def detect_target(
    device: torch.device | None = None, *, compiler: str | None = None, threads: int | None = None
) -> Target:
    """Return the target that describes this machine's CPU, or a GPU of it.

    Args:
        device: A CUDA device; None is the CPU.
        compiler: Command of the C++ compiler, perhaps with words before it (`ccache g++`) and options; None takes
            `$CXX`, and without that the first of g++ and clang++ on the search path.
        threads: Number of OpenMP threads; None takes torch's own number.

    Returns:
        The target. Its `compiler` is "" when none was found: kernels can still be emitted, but not built.

    Raises:
        InvalidArgumentError: `threads` is not positive.

    Example:
        >>> detect_target(compiler="g++", threads=2).threads
        2
    """
    if threads is not None and threads < 1:
        raise InvalidArgumentError(f"threads must be at least 1, not {threads}", code="runtime.threads")
    if compiler is None:
        compiler = os.environ.get("CXX", "").strip() or next((c for c in COMPILERS if shutil.which(c)), "")
    if device is not None and device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        isa = _architecture(properties)
        return Target("cuda", isa, compiler, threads or torch.get_num_threads(), _machine(isa, properties))
    return Target("cpu", _isa(platform.machine(), cpu_features()), compiler, threads or torch.get_num_threads())


def packed_by_library() -> tuple[torch.dtype, ...]:
    """Return the element types whose convolutions the CPU's library computes over packed weights; none without it."""
    ops = torch.ops.mkldnn
    if not torch.backends.mkldnn.is_available() or not torch._C._get_mkldnn_enabled():
        return ()
    if not all(hasattr(ops, name) for name in ("_convolution_pointwise", "_reorder_convolution_weight")):
        return ()
    return (torch.float32, torch.bfloat16) if ops._is_mkldnn_bf16_supported() else (torch.float32,)


def convolved_by_matrix_units() -> tuple[torch.dtype, ...]:
    """Return the element types whose convolutions a GPU's matrix units compute, with torch's settings.

    Single precision is among them where `torch.backends.cudnn.conv.fp32_precision` lets it be rounded to TF32.

    Example:
        >>> torch.float16 in convolved_by_matrix_units()
        True
    """
    half = (torch.bfloat16, torch.float16)
    settings: Any = torch.backends.cudnn
    return (*half, torch.float32) if settings.conv.fp32_precision == "tf32" else half


def nan_gelu() -> tuple[str, ...]:
    """Return the element types for which eager's exact gelu of infinity is NaN on this CPU, with torch's settings.

    A dense tensor of more than one element goes to oneDNN where that is switched on: its code for AVX-512 multiplies
    infinity by 0, the one for AVX2 doesn't.

    Example:
        >>> "f64" in nan_gelu()
        False
    """
    return _nan_gelu(torch._C._get_mkldnn_enabled())


@functools.cache
def _nan_gelu(onednn: bool) -> tuple[str, ...]:
    """Ask eager, once for each setting: a forked process must not, since its parent's threads aren't there."""
    with _disable_current_modes(), torch.no_grad():
        values = {
            n: torch.full((16,), math.inf, dtype=dtype_from_name(n), device="cpu") for n in ("f32", "f16", "bf16")
        }
        return tuple(n for n, x in values.items() if bool(torch.ops.aten.gelu.default(x).isnan().any()))


def _architecture(properties: Any) -> str:
    """Return the name of a GPU's architecture, in the words of its maker's compiler."""
    if torch.version.hip is not None:
        return str(properties.gcnArchName).partition(":")[0]
    return f"sm_{properties.major}{properties.minor}"


def _machine(isa: str, properties: Any) -> Machine | None:
    """Return the numbers of a GPU as far as its driver tells them; its rates are those of the table's processors."""
    nearest = nearest_machine("cuda", isa)
    if nearest is None:
        return None
    scaled = nearest.scaled(properties.multi_processor_count)
    return replace(
        scaled,
        lanes=properties.warp_size,
        register_bytes=4 * getattr(properties, "regs_per_multiprocessor", nearest.register_bytes // 4),
        shared_bytes=properties.shared_memory_per_multiprocessor,
        l2_bytes=max(properties.L2_cache_size, nearest.l2_bytes if torch.version.hip is not None else 0),
    )


def _isa(machine: str, features: frozenset[str]) -> str:
    if machine in ("aarch64", "arm64"):
        return "neon"
    if machine in ("x86_64", "AMD64"):
        return "avx512" if features >= AVX512 else "avx2" if features >= AVX2 else "scalar"
    return "scalar"


def cpu_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Return the feature names that the kernel reports for the first CPU; empty when it reports none."""
    try:
        with cpuinfo.open("rb") as file:
            head = file.read(1 << 14)  # one CPU's entry is a few KB; machines with hundreds of CPUs have MBs
    except OSError:
        return frozenset()
    match = re.search(rb"^(?:flags|Features)\s*:(.*)$", head, re.MULTILINE)
    return frozenset(match.group(1).decode().split()) if match else frozenset()


def compiler_identity(compiler: str) -> str:
    """Return text that changes when `compiler` names another program; "" when there is no such program.

    Size and time of each resolved file stand for the version: asking the compiler would start a process per build.
    """
    words = words_of(compiler)
    paths = [shutil.which(word) or "" for word in words]
    return " ".join(map(_identity, words, paths)) if paths and paths[0] else ""


def _identity(word: str, path: str) -> str:
    if not path:  # an option
        return word
    real = os.path.realpath(path)
    status = os.stat(real)
    return f"{real} {status.st_size} {status.st_mtime_ns}"


def host_identity() -> str:
    """Return text that changes when machine code built here might not run here any more."""
    features = " ".join(sorted(cpu_features()))
    return f"{platform.machine()} {os.confstr('CS_GNU_LIBC_VERSION')} {features}"


def gpu_identity(device: torch.device) -> str:
    """Return text that changes when what was decided, recorded or built for a GPU might not be so for another.

    Args:
        device: A CUDA device of this machine.
    """
    cards = (detect_target(device), torch.cuda.get_device_name(device), torch.cuda.current_device())
    versions = (torch.version.cuda, torch.version.hip, torch.backends.cudnn.version())
    return f"{device} {cards!r} {versions!r}"
