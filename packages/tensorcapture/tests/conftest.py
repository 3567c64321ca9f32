"""Puts the helpers of these tests and of those of the evaluator on the path."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "pyeval" / "tests")]  # tensor_executor; executor, outcome, programs
