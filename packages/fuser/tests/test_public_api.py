"""The public names and signatures, pinned."""

from pathlib import Path

import intarsia_fuser
from intarsia_testkit.public_api import check_public_api


def test_public_api():
    check_public_api(intarsia_fuser, Path(__file__).parent / "public_api.txt")
