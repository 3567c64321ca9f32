"""The versions that `nox -s versions` runs everything with; docs/status.md has its table: which passed, and when."""

from __future__ import annotations

import re

__all__ = ["PYTHONS", "TORCHES", "newer_than_tested"]

TORCHES = ("2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")
"""Releases of torch, the newest last: torch changes private names between these, which contract tests name."""

PYTHONS = ("3.11", "3.12", "3.13")
"""Versions of CPython: the bytecode and the frames of each are another's."""


def newer_than_tested(version: str) -> bool:
    """Tell whether a torch is of a later series than the newest tested one."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return match is not None and (int(match[1]), int(match[2])) > _series(TORCHES[-1])


def _series(version: str) -> tuple[int, int]:
    major, minor, *_ = version.split(".")
    return int(major), int(minor)
