"""The modes of `compile`: names for groups of options."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from intarsia_ir.choices import one_of

__all__ = ["MODES", "mode_options"]

MODES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "default": MappingProxyType({}),
        "reduce-overhead": MappingProxyType({"cuda_graphs": True}),
        "max-autotune": MappingProxyType({"cuda_graphs": True, "max_autotune": True}),
        "max-autotune-no-cudagraphs": MappingProxyType({"max_autotune": True}),
    }
)


def mode_options(mode: str | None) -> Mapping[str, Any]:
    """Return the options that a mode stands for.

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
    return MODES[mode]
