"""The public names and signatures are pinned."""

from pathlib import Path

import intarsia_cpp
from intarsia_testkit.public_api import check_public_api


def test_public_api() -> None:
    check_public_api(intarsia_cpp, Path(__file__).parent / "public_api.txt")
