"""The public names and signatures, pinned."""

from pathlib import Path

import intarsia_report
from intarsia_testkit.public_api import check_public_api


def test_public_api():
    check_public_api(intarsia_report, Path(__file__).parent / "public_api.txt")
