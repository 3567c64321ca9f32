"""What the passes read besides the program that they are given: settings, machine, versions, their own sources."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from intarsia_runtime.target import convolved_by_matrix_units, host_identity, nan_gelu

__all__ = ["SETTINGS", "fingerprint", "settings"]

_DEVICES = ("cpu", "cuda")
# what decides how a graph is recorded, or what a constant of it is folded to, beside torch
_LIBRARIES = ("numpy", "sympy", "opt_einsum", "triton")
_PRECISIONS = (
    ("generic", "all"), ("cuda", "matmul"), ("cuda", "conv"), ("cuda", "rnn"),
    ("mkldnn", "matmul"), ("mkldnn", "conv"), ("mkldnn", "rnn"),
)  # fmt: skip


def _autocast() -> Any:
    return [(d, torch.is_autocast_enabled(d), str(torch.get_autocast_dtype(d))) for d in _DEVICES]


def _deterministic() -> Any:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        getattr(torch.utils.deterministic, "fill_uninitialized_memory"),  # noqa: B009  (mypy sees a module without it)
    )


def _attention() -> Any:
    cuda = torch.backends.cuda
    names = ("flash", "mem_efficient", "math", "cudnn")
    return [getattr(cuda, f"{name}_sdp_enabled")() for name in names], torch._C._get_sdp_priority_order()


def _is_denormal_kept() -> bool:
    smallest = sys.float_info.min
    return smallest / 2 != 0.0


def _of(module: Any, *names: str) -> Any:
    return [str(getattr(module, name)) for name in names]


# each is read anew for each graph: a row that is missing here is a wrong result there
SETTINGS: Mapping[str, Callable[[], Any]] = MappingProxyType(
    {
        "grad": torch.is_grad_enabled,
        "inference": torch.is_inference_mode_enabled,
        "anomaly": torch.is_anomaly_enabled,
        "autocast": _autocast,
        "autocast cache": torch.is_autocast_cache_enabled,
        "default dtype": lambda: str(torch.get_default_dtype()),
        "default device": lambda: str(torch.get_default_device()),
        "deterministic": _deterministic,
        # not torch.get_float32_matmul_precision, which raises where the old and the new way to set it were both used
        "precisions": lambda: [torch._C._get_fp32_precision_getter(*which) for which in _PRECISIONS],
        "half reductions": lambda: (
            torch._C._get_cublas_allow_fp16_reduced_precision_reduction(),
            torch._C._get_cublas_allow_bf16_reduced_precision_reduction(),
        ),
        "mkldnn": lambda: (torch._C._get_mkldnn_enabled(), torch._C._get_mkldnn_deterministic()),
        "nnpack": torch._C._get_nnpack_enabled,
        "cudnn": lambda: _of(torch.backends.cudnn, "enabled", "benchmark", "deterministic"),
        "attention": _attention,
        "transformer fast path": torch.backends.mha.get_fastpath_enabled,
        "einsum": lambda: _of(torch.backends.opt_einsum, "enabled", "strategy"),
        "quantized engine": lambda: str(torch.backends.quantized.engine),
        "sparse checks": torch.sparse.check_sparse_tensor_invariants.is_enabled,
        "denormals": _is_denormal_kept,
        "threads": torch.get_num_threads,
        # answers that depend on variables of the environment which torch's libraries read
        "capability": torch.backends.cpu.get_cpu_capability,
        "gelu of infinity": nan_gelu,
        "convolutions": lambda: [str(dtype) for dtype in convolved_by_matrix_units()],
    }
)


def settings() -> str:
    """Return text that changes with any setting that a pass, or torch while a pass records, reads.

    Example:
        >>> before = settings()
        >>> with torch.no_grad():
        ...     before == settings()
        False
    """
    return "\n".join(f"{name}: {read()!r}" for name, read in SETTINGS.items())


@functools.cache
def fingerprint(packages: tuple[str, ...]) -> str:
    """Return text that changes with the sources of `packages`, with Python, torch, the libraries and the machine.

    Args:
        packages: Importable names.
    """
    digest = hashlib.sha256()
    for path, content in _sources(packages):
        digest.update(f"{path} {len(content)} ".encode() + content)
    libraries = [f"{name} {getattr(sys.modules.get(name), '__version__', '')}" for name in _LIBRARIES]
    versions = [sys.version, torch.__version__, str(torch.version.git_version), *libraries]
    return "\n".join([digest.hexdigest(), *versions, host_identity()])


def _sources(packages: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the files of packages but those that are made of others, by a name that doesn't say where they lie."""
    for package in packages:
        spec = importlib.util.find_spec(package)
        for folder in spec.submodule_search_locations or () if spec else ():
            for path in sorted(Path(folder).rglob("*")):
                if path.suffix not in (".pyc", ".so") and path.is_file():
                    yield f"{package} {path.relative_to(folder)}", path.read_bytes()
