"""Tables of opcodes: what each instruction does to a frame under evaluation, for each Python version."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from intarsia_pyeval.evaluate import Opcode

__all__ = ["breaks", "table"]


def table() -> Mapping[str, Opcode]:
    """Return opcode name -> handler for the running Python."""
    if sys.version_info >= (3, 13):
        from intarsia_pyeval.opcodes.py313 import TABLE as TABLE_313

        return TABLE_313
    if sys.version_info >= (3, 12):
        from intarsia_pyeval.opcodes.py312 import TABLE as TABLE_312

        return TABLE_312
    from intarsia_pyeval.opcodes.py311 import TABLE as TABLE_311

    return TABLE_311


def breaks() -> Mapping[str, str]:
    """Return opcode name -> why it ends a graph, for the running Python."""
    from intarsia_pyeval.opcodes.untraced import BREAKS

    return BREAKS
