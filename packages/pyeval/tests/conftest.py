"""Puts the helpers of these tests on the path; nothing here imports torch."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # executor, outcome, programs
