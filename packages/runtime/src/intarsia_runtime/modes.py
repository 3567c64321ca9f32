"""The modes of `compile`: names for groups of options."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from intarsia_ir.choices import one_of
from intarsia_ir.where import warn_user

__all__ = ["MODES", "mode_options"]

MODES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "default": MappingProxyType({}),
        "reduce-overhead": MappingProxyType({"cuda_graphs": True}),
        "max-autotune": MappingProxyType({"cuda_graphs": True}),
        "max-autotune-no-cudagraphs": MappingProxyType({}),
    }
)


def mode_options(mode: str | None) -> Mapping[str, Any]:
    """Return the options that a mode stands for, and say so where it does less than its name promises.

    Args:
        mode: Its name; None: `"default"`.

    Raises:
        InvalidArgumentError: There is no such mode.

    Example:
        >>> dict(mode_options("reduce-overhead"))
        {'cuda_graphs': True}
    """
    mode = "default" if mode is None else mode
    one_of("mode", mode, tuple(MODES))
    if mode.startswith("max-autotune"):
        other = "default" if mode.endswith("-no-cudagraphs") else "reduce-overhead"
        warn_user(f"mode={mode!r} compiles as {other!r} does: there is no tuning yet", UserWarning)
    return MODES[mode]
