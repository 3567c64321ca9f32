"""Runs artefacts in a process of their own, without the tracer.

For each `NAME.safetensors` it makes the calls in `NAME.calls`, a list of (args, kwargs), and writes `NAME.results`:
for each call its result and its arguments afterwards. Nothing that captures or compiles may be loaded, and no compiler
runs.
"""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import torch

import intarsia_export


class Pair(NamedTuple):
    """What one of the programs returns: a class that the other process has to know."""

    first: torch.Tensor
    second: object


ALLOWED = {"export", "guards", "ir", "loops", "runtime", "shapes"}


def loaded_packages() -> set[str]:
    """Return which of our packages are loaded."""
    return {name.partition(".")[0].partition("_")[2] for name in sys.modules if name.startswith("intarsia")}


def main(folder: Path) -> None:
    """Run all artefacts of a folder."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError(f"a process was started: {args}")

    subprocess.Popen.__init__ = refuse  # type: ignore[method-assign,assignment]
    for path in sorted(folder.glob("*.safetensors")):
        program = intarsia_export.load(path)
        results = []
        for args, kwargs in torch.load(path.with_suffix(".calls"), weights_only=False):
            torch.manual_seed(0)
            results.append((copy.deepcopy(program(*args, **kwargs)), args, kwargs))
        torch.save(results, path.with_suffix(".results"))
    strange = loaded_packages() - ALLOWED
    assert not strange, strange
