"""The options of `compile`, validated with the nearest known name in the message."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Literal

from intarsia_ir.choices import instance_of, one_of, refuse_unknown
from intarsia_runtime.dumps import make_dump_folder

__all__ = ["Options"]

_CHOICES: dict[str, tuple[Any, ...]] = {
    "on_error": ("eager", "raise"),
    "rng": (None, "eager", "philox"),
    "numerics": ("default",),
    "verify_each": (True, False),
    "cuda_graphs": (True, False),
    "max_autotune": (True, False),
    "freezing": (True, False),
    "warm_start": (True, False),
    "calibration": (True, False),
}


@dataclass(frozen=True, slots=True)
class Options:
    """What `compile(options=...)` takes.

    Args:
        on_error: `"eager"`: what can't be compiled runs in eager, with one warning a frame; `"raise"`: it raises.
        rng: `"eager"`: random ops draw the very numbers that eager draws; `"philox"`: generated kernels draw others, of
            the same distributions, from one seed an op; faster. None: the first on the CPU, the second on a GPU.
        numerics: `"default"`: half types are computed in float32 inside a kernel.
        verify_each: Verify the program after every stage, and that the stage left what it was given as it was.
        dump_dir: Folder that takes the text of the program after every stage, one subfolder a graph; None: no dumps.
        cuda_graphs: On a GPU, replay a graph's launches from the second call that looks alike on; see the README.
        max_autotune: Measure how each kernel runs fastest, once on each machine; see `intarsia_tuner`.
        freezing: Compute what follows from a module's weights once, where no gradients are; see the README.
        warm_start: Keep finished plans in the cache, and run no pass for a graph whose plan is there; not with
            `verify_each` or `dump_dir`, which want passes. `INTARSIA_WARM_START=0` switches it off everywhere.
        calibration: Predict times by the target's calibration, which `python -m intarsia_study.calibrate` makes, where
            the cache has one; else by its peaks. `INTARSIA_CALIBRATION=0` switches it off everywhere.
        recompile_limit: Versions of one function; a further call that none fits runs in eager (told once), or raises.
    """

    on_error: Literal["eager", "raise"] = "eager"
    rng: str | None = None
    numerics: str = "default"
    verify_each: bool = False
    dump_dir: str | os.PathLike[str] | None = None
    cuda_graphs: bool = False
    max_autotune: bool = False
    freezing: bool = False
    warm_start: bool = True
    calibration: bool = True
    recompile_limit: int = 8

    @staticmethod
    def parse(given: Mapping[str, Any] | None, preset: Mapping[str, Any] = MappingProxyType({})) -> Options:
        """Return the options for a user's mapping, over those of a mode; the folder for dumps is made.

        Raises:
            InvalidArgumentError: An unknown key, a value outside a key's choices, a folder that can't be written.
        """
        instance_of("options", given, Mapping, type(None))
        given = {**preset, **(given or {})}
        refuse_unknown("option", given, [f.name for f in fields(Options)], code="options.unknown")
        for key, value in given.items():
            if key in _CHOICES:
                one_of(f"option {key}", value, _CHOICES[key])
        instance_of("option recompile_limit", given.get("recompile_limit", 0), int)
        instance_of("option dump_dir", given.get("dump_dir"), str, os.PathLike, type(None))
        make_dump_folder(given.get("dump_dir"))
        return Options(**given)
