"""Schedules of a GPU by measurement: `autotune_spaces.py`, in Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_candidates_are_right_and_the_space_is_walked():
    """In a process of its own: whether Triton interprets is decided when it is imported."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    path = Path(__file__).with_name("autotune_spaces.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "10 passed" in done.stdout, done.stdout[-4000:] + done.stderr[-2000:]
