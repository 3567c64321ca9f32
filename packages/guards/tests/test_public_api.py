"""The public surface is the pinned one."""

from pathlib import Path

import intarsia_guards
from intarsia_testkit.public_api import check_public_api


def test_public_api() -> None:
    check_public_api(intarsia_guards, Path(__file__).parent / "public_api.txt")
