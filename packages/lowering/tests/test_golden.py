"""Small lowerings as text: one idea a file, `<name>.aten.ir` in and `<name>.loops.ir` out."""

from pathlib import Path

import pytest

import intarsia_loops
import intarsia_lowering
from intarsia_ir.aten import parse_ir
from intarsia_testkit.golden import check_golden

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.aten.ir")), ids=lambda p: p.name)
def test_golden(path: Path) -> None:
    loops = intarsia_lowering.lower(parse_ir(path.read_text()))
    out = path.with_name(path.name.replace(".aten.", ".loops."))
    check_golden(intarsia_loops.loops.print_ir(loops, made_by="lower(aten)"), out)
