"""`intarsia doctor`: what this machine has, what is missing, and what to install."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

import intarsia
import intarsia_runtime
import intarsia_tuner
from intarsia_command.exits import Exit
from intarsia_ir.errors import IntarsiaError
from intarsia_ir.records import KernelSource, Launch
from intarsia_ir.tested import PYTHONS, TORCHES, newer_than_tested
from intarsia_runtime.entries import problems_of

__all__ = ["Finding", "doctor", "examine", "versions_line"]

OPENMP = """#include <omp.h>
extern "C" void seg0(float* x, float* y) {
  #pragma omp parallel for
  for (int i = 0; i < 64; i++) y[i] = x[i] + 1;
}
"""
INSTALL_COMPILER = "install g++ (Debian and Ubuntu: apt-get install g++; Fedora: dnf install gcc-c++) or clang++"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Args:
        what: What.
        state: `"fine"`, `"missing"`: needed and not there; `"note"`: works without it, or not tested.
        detail: What was found.
        remedy: What to do; "" where nothing must be done.
    """

    what: str
    state: str
    detail: str
    remedy: str = ""


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> Exit:
    """Say what this machine has, what is missing, and what to install."""
    findings = examine()
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        table = Table("", "state", "found", "remedy")
        for f in findings:
            style = {"fine": "green", "missing": "red"}.get(f.state, "yellow")
            table.add_row(f.what, f"[{style}]{f.state}[/]", f.detail, f.remedy)
        Console().print(table)
    return Exit.FOUND if any(f.state == "missing" for f in findings) else Exit.FINE


def versions_line() -> str:
    """Return the versions that a report of a fault needs."""
    return f"intarsia {intarsia.__version__}, torch {torch.__version__}, Python {platform.python_version()}"


def examine() -> tuple[Finding, ...]:
    """Look at everything; each look ends in a finding, whatever it meets."""
    looks: tuple[Callable[[], Iterator[Finding]], ...] = (_versions, _compiler, _gpu, _folders, _calibration, _compiles)
    found = list[Finding]()
    for look in looks:
        try:
            found += look()
        except (IntarsiaError, OSError, RuntimeError) as error:
            found.append(Finding(look.__name__.strip("_"), "missing", str(error)))
    return tuple(found)


def _versions() -> Iterator[Finding]:
    python = ".".join(map(str, sys.version_info[:2]))
    tested = python in PYTHONS
    remedy = "" if tested else f"Python {', '.join(PYTHONS)} are supported"
    yield Finding("python", "fine" if tested else "missing", platform.python_version(), remedy)
    newer = newer_than_tested(torch.__version__)
    remedy = f"torch {TORCHES[-1]} is the newest that was tested" if newer else ""
    yield Finding("torch", "note" if newer else "fine", torch.__version__, remedy)
    yield Finding("intarsia", "fine", intarsia.__version__)
    for name in ("triton", "transformers"):
        yield Finding(name, "fine" if _version(name) else "note", _version(name) or "not installed")


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _compiler() -> Iterator[Finding]:
    target = intarsia_runtime.detect_target()
    yield Finding("cpu", "fine", f"{platform.machine()}, {target.isa}, {target.threads} threads")
    if not target.compiler:
        yield Finding("C++ compiler", "missing", f"none in {os.environ.get('PATH', '')}", INSTALL_COMPILER)
        return
    yield Finding("C++ compiler", "fine", shutil.which(target.compiler) or target.compiler)
    source = KernelSource(OPENMP, "cpp", launches=(Launch("seg0", ("x", "y")),))
    with tempfile.TemporaryDirectory() as folder:
        try:
            library = intarsia_runtime.build(source, target, cache=intarsia_runtime.Cache(folder))
        except IntarsiaError as error:
            yield Finding("OpenMP", "missing", error.explanation.split("\n")[0], INSTALL_COMPILER)
            return
        x, y = torch.zeros(64), torch.empty(64)
        library.launcher("seg0", 2)(x.data_ptr(), y.data_ptr())
    works = bool((y == 1).all())
    detail = "a parallel loop compiles and runs" if works else "a parallel loop gives a wrong result"
    yield Finding("OpenMP", "fine" if works else "missing", detail)


def _gpu() -> Iterator[Finding]:
    if not torch.cuda.is_available():
        built = torch.version.cuda or torch.version.hip
        detail = "none is visible" if built else "this torch was built for the CPU only"
        yield Finding("gpu", "note", detail, "none is needed; for one, install a driver and a torch that knows it")
        return
    for number in range(torch.cuda.device_count()):
        yield Finding(f"gpu {number}", "fine", torch.cuda.get_device_name(number))
    if not _version("triton"):
        yield Finding("triton", "missing", "kernels for a GPU need it", "pip install triton")


def _folders() -> Iterator[Finding]:
    cache = intarsia.default_cache_dir()
    problems = problems_of(cache)
    remedy = "set INTARSIA_CACHE_DIR to a folder of your own" if problems else ""
    yield Finding("cache", "note" if problems else "fine", "; ".join(problems) or str(cache), remedy)
    try:
        free = shutil.disk_usage(_existing(cache)).free >> 20
        yield Finding("room", "fine" if free >= 100 else "note", f"{free} MiB free for the cache")
        with tempfile.TemporaryDirectory() as folder:
            yield Finding("temporary files", "fine", str(Path(folder).parent))
    except OSError as error:
        yield Finding("temporary files", "missing", str(error), "set TMPDIR to a folder that this user can write")


def _calibration() -> Iterator[Finding]:
    """Whether predicted times are of this machine."""
    target = intarsia_runtime.detect_target()
    path = intarsia_tuner.calibration_path(intarsia.default_cache_dir(), target)
    if os.environ.get("INTARSIA_CALIBRATION") == "0":
        yield Finding("calibration", "note", "INTARSIA_CALIBRATION=0: times are predicted by the target's peaks")
    elif not path.exists():
        remedy = "to predict times by this machine's: python -m intarsia_study.calibrate"
        yield Finding("calibration", "note", f"none for {target.device} {target.isa}", remedy)
    else:
        with warnings.catch_warnings(record=True):  # what is wrong with it is the remedy's business
            prices = intarsia_tuner.calibrated_prices(intarsia.default_cache_dir(), target)
        remedy = "" if prices else "it can't be read; make it again: python -m intarsia_study.calibrate"
        yield Finding("calibration", "fine" if prices else "note", str(path), remedy)


def _existing(path: Path) -> Path:
    return next(p for p in (path, *path.absolute().parents) if p.exists())


def _compiles() -> Iterator[Finding]:
    """Compile a function whole: the frame hook, every pass, the build and the call."""
    x = torch.linspace(-1, 1, 32)
    fast = intarsia.compile(lambda x: torch.softmax(x * 2, -1), fullgraph=True, options={"on_error": "raise"})
    same = torch.allclose(fast(x), torch.softmax(x * 2, -1))
    detail = "a function compiles, and gives what eager gives" if same else "a compiled function gives another result"
    yield Finding("compile", "fine" if same else "missing", detail, "" if same else "report it, with this table")
