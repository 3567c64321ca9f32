"""The steps of a graph as text, for a process without Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from intarsia_export.contents import Variant

__all__ = ["host_plan"]


def host_plan(variant: Variant) -> tuple[str, str]:
    return "", ""
