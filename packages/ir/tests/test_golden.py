"""What programs look like, in full: small files, each one idea. `UPDATE_GOLDEN=1` rewrites them."""

import sys
from pathlib import Path

import pytest
import torch
import torch.fx as fx
from torch import nn

from intarsia_ir import VerifyError, aten
from intarsia_ir.torch import normalise, print_ir
from intarsia_testkit.golden import check_golden

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", ["values", "effects"])
def test_aten_text(name: str) -> None:
    """The file reads back and prints as itself."""
    path = GOLDEN / f"{name}.ir"
    gm = aten.parse_ir(path.read_text(), constants={"weight": torch.ones(3)})
    aten.verify(gm)
    check_golden(aten.print_ir(gm), path)


def test_effects_refused() -> None:
    """The same program isn't functional: both writes are found."""
    gm = aten.parse_ir((GOLDEN / "effects.ir").read_text())
    with pytest.raises(VerifyError) as info:
        aten.verify(gm, functional=True)
    check_golden(str(info.value), GOLDEN / "effects_refused.txt")


def test_normalise() -> None:
    """A module call becomes a function call; its parameters become the last inputs, tied ones once."""
    layer = nn.Linear(3, 3)
    gm = fx.symbolic_trace(nn.Sequential(layer, nn.ReLU(), layer))
    check_golden(print_ir(normalise(gm).graph_module), GOLDEN / "normalise.ir")


def test_rules_page() -> None:
    """`docs/rules.md` holds the rules as the verifiers state them."""
    from intarsia_ir.aten.verify import verify as verify_aten
    from intarsia_ir.torch.verify import verify as verify_torch

    page = "# Rules of the torch and aten dialects\n\nWritten from the verifiers; `UPDATE_GOLDEN=1` rewrites this.\n"
    for name, verify in (("torch", verify_torch), ("aten", verify_aten)):
        lines = str(sys.modules[verify.__module__].__doc__).splitlines()
        rules = [line.split(":", 1) for line in lines if line[1:2].isdigit()]
        page += f"\n## {name}\n\n" + "".join(f"- **{number}**:{rule}\n" for number, rule in rules)
    check_golden(page, GOLDEN.parent.parent / "docs" / "rules.md")
