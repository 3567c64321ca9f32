"""Small programs and what each rewrite makes of them; files named `_refused` show what must stay as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from intarsia_ir.aten import parse_ir, print_ir
from intarsia_rewrites import eliminate_common_subexpressions, eliminate_dead_code, fold_constants
from intarsia_testkit.golden import check_golden

FOLDER = Path(__file__).parent / "golden"
PASSES = {"cse": eliminate_common_subexpressions, "dce": eliminate_dead_code, "fold": fold_constants}
CONSTANTS = {"constant": torch.tensor([1.0, 2.0, 3.0])}
AFTER = "\n// after:\n"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ir")), ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    before = path.read_text().partition(AFTER)[0].rstrip() + "\n"
    remark, _, program = before.partition("\n// dialect")
    gm = parse_ir("// dialect" + program, constants=CONSTANTS)
    after = PASSES[path.stem.partition("_")[0]](gm)
    text = print_ir(after)
    assert (text == print_ir(gm)) == path.stem.endswith("_refused")
    check_golden(f"{remark}\n{print_ir(gm)}{AFTER}{text}", path)
