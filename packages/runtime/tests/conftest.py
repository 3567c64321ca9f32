"""Fixtures: a fresh cache, this machine's target, and compilers made of shell scripts."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from intarsia_ir.records import Target
from intarsia_runtime import Cache, detect_target


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture(scope="session")
def target() -> Target:
    return detect_target()


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    """Make a shell script and return its path, to serve as the compiler."""

    def make(body: str) -> str:
        path = tmp_path / f"compiler{len(list(tmp_path.glob('compiler*')))}"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return make
