"""The public surface is pinned."""

from __future__ import annotations

from pathlib import Path

import intarsia_dispatch
from intarsia_testkit.public_api import check_public_api


def test_public_api():
    check_public_api(intarsia_dispatch, Path(__file__).parent / "public_api.txt")
