"""The public names and signatures are those of public_api.txt."""

from pathlib import Path

import intarsia_lowering
import intarsia_lowering.writing
from intarsia_testkit.public_api import check_public_api


def test_public_api() -> None:
    check_public_api(intarsia_lowering, Path(__file__).parent / "public_api.txt", intarsia_lowering.writing)
