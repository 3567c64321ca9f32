"""The public names and signatures, pinned."""

from pathlib import Path

import intarsia_scheduler
from intarsia_testkit.public_api import check_public_api


def test_public_api():
    check_public_api(intarsia_scheduler, Path(__file__).parent / "public_api.txt")
