"""The public surface is pinned: changing it shows in a diff."""

from pathlib import Path

import intarsia_autodiff
from intarsia_testkit.public_api import check_public_api


def test_public_api() -> None:
    check_public_api(intarsia_autodiff, Path(__file__).parent / "public_api.txt")
