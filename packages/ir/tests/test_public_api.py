"""The public surface is the pinned one, and importing the records imports no torch."""

import subprocess
import sys
from pathlib import Path

import intarsia_ir
from intarsia_ir import aten, dtypes, eager, effects, higher_order, meta
from intarsia_ir import torch as torch_dialect
from intarsia_testkit.public_api import check_public_api


def test_public_api() -> None:
    check_public_api(
        intarsia_ir,
        Path(__file__).parent / "public_api.txt",
        *(aten, eager, torch_dialect, meta, dtypes, effects, higher_order),
    )


def test_records_import_no_torch() -> None:
    script = "import sys, intarsia_ir; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
