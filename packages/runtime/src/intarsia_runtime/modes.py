"""The modes of `compile`: how much the runtime may do to a compiled graph."""

from __future__ import annotations

from intarsia_ir.choices import one_of
from intarsia_ir.where import warn_user

__all__ = ["MODES", "check_mode"]

MODES = ("default", "reduce-overhead", "max-autotune")


def check_mode(mode: str) -> None:
    """Check the name of a mode, and say so where it doesn't differ from the default.

    Raises:
        InvalidArgumentError: There is no such mode.
    """
    one_of("mode", mode, MODES)
    if mode != "default":
        warn_user(f"mode={mode!r} compiles as 'default' does: there are no CUDA graphs and no tuning yet", UserWarning)
