"""The pinned surface."""

from __future__ import annotations

from pathlib import Path

import intarsia_pyeval
from intarsia_testkit.public_api import check_public_api


def test_public_api():
    check_public_api(intarsia_pyeval, Path(__file__).parent / "public_api.txt")
