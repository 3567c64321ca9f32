"""The sweep's own rules: small models are right, and what isn't right is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from integration.sweep import of_diffusers, of_timm, of_transformers
from integration.sweep.__main__ import ROWS, known, main
from integration.sweep.check import difference
from integration.sweep.page import is_right, page, summary

FEW = ["gpt2", "clip"]
ROW = {
    "architecture": "a_small",
    "library": "timm",
    "family": "a",
    "date": "2026-11-30",
    "with": "timm 1.0, here",
    "runs": True,
    "graphs": 1,
    "versions": 2,
    "fallbacks": 0,
    "inference": "right",
    "training": "right",
}


def test_small_models_are_one_graph_each(tmp_path):
    assert set(FEW) < set(of_transformers.families())
    results = tmp_path / "rows.jsonl"
    # in a process that has computed nothing: the sweep forks one for each model, and threads don't come along
    command = [sys.executable, "-m", "integration.sweep", *FEW, "--rows", str(results)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "2 of 2 run in eager" in done.stdout, done.stdout + done.stderr
    rows = list(known(results).values())
    for row in rows:
        assert (row["runs"], row["graphs"], row["versions"], row["fallbacks"]) == (True, 1, 2, 0), row
        assert (row["inference"], row["training"]) == ("right", "right") and row["kernels"] > 0, row
    assert main([*FEW, "--rows", str(results)]) == 0, "rows that are kept aren't run again"
    assert len(results.read_text().splitlines()) == len(FEW)
    assert main(["--rows", str(results), "--write", str(tmp_path / "models.md")]) == 0
    assert (tmp_path / "models.md").read_text() == page(rows)


@pytest.mark.parametrize(
    ("change", "said"),
    [({"inference": "wrong in call 0: tensor 0"}, False), ({"training": "UnsupportedError: x"}, False),
     ({"training": "no: no gradients"}, True), ({"runs": "ValueError: no small one"}, True), ({}, True)],
)  # fmt: skip
def test_what_is_right(change, said):
    assert is_right(ROW | change) is said


def test_a_page_tells_what_is_not_as_it_should_be():
    rows = [
        ROW,
        ROW | {"architecture": "a_big", "graphs": 3, "breaks": ["TENSOR_BRANCH: if x|y"], "date": "2026-11-29"},
        ROW | {"architecture": "b", "inference": "wrong in call 1: tensor 0", "versions": 3},
        ROW | {"architecture": "c", "training": "no: no gradients"},
        ROW | {"architecture": "d", "runs": "ValueError: no images"},
        ROW | {"architecture": "e", "training": "UnsupportedError: x\ny"},
        ROW | {"architecture": "UNet", "library": "diffusers", "with": "diffusers 2.0, there"},
    ]
    made = page(rows)
    head, diffusers, timm = made.split("\n## ")
    assert head.startswith("# Models of transformers, timm and diffusers\n")
    assert "diffusers 2.0, there; 2026-11-30" in diffusers and "| a | UNet | yes | yes | 2 | yes |  |" in diffusers
    assert "- timm 1.0, here; 2026-11-29 to 2026-11-30" in timm
    assert timm.splitlines()[-6:] == [
        "| --- | --- | --- | --- | ---: | --- | --- |",
        "| a | a_big | yes | 3 | 2 | yes | TENSOR_BRANCH: if x/y |",
        "| a | a_small | yes | yes | 2 | yes |  |",
        "| a | b | no | yes | 3 | yes | wrong in call 1: tensor 0 |",
        "| a | c | yes | yes | 2 | no | no: no gradients |",
        "| a | e | yes | yes | 2 | not right | UnsupportedError: x y |",
    ]
    assert summary(rows[:6]) == [
        "5 of 6 run in eager; right without gradients 4; fallbacks 0",
        "one graph: 4 (80%)",
        "trained: 3 right of 4",
        "more than two versions for three batch sizes: b",
        "not right: b, e",
    ]
    assert all(f"- {line}\n" in timm for line in summary(rows[:6]))
    assert page(reversed(rows)) == made


def test_the_page_is_what_the_rows_say():
    assert (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8") == page(known(ROWS).values())


def test_tables_name_enough():
    timm, diffusers = of_timm.families(), of_diffusers.families()
    assert len(timm) >= 150 and len(set(timm.values())) == len(of_timm.NAMES)
    assert len(diffusers) >= 15 and {"UNet", "autoencoder", "transformer", "scheduler"} == set(diffusers.values())


def test_blocks_that_are_alike_are_left_out():
    def block(stride: int) -> torch.nn.Module:
        return torch.nn.Conv2d(4, 4, 3, stride=stride, padding=1)

    blocks = torch.nn.Sequential(block(2), block(1), block(1), torch.nn.ReLU(), block(1))
    kept = [blocks[n] for n in (0, 1, 3, 4)]
    of_timm._thin(blocks)
    assert list(blocks) == kept and list(dict(blocks.named_children())) == ["0", "1", "2", "3"]
    assert blocks(torch.ones(1, 4, 8, 8)).shape == (1, 4, 4, 4)


def test_differences_are_told():
    x = torch.tensor([1.0, 100.0])
    assert difference([x], [x], 1e-4) == "" and difference([x + 1e-3], [x], 1e-4) == ""
    assert difference([x + 1], [x], 1e-4) == "tensor 0 by 1 of 100"
    assert difference([x], [x.double()], 1e-4).startswith("tensor 0: torch.float32[2], eager torch.float64")
    assert difference([], [x], 1e-4) == "0 tensors, eager 1"
    assert difference([torch.tensor([1e-9])], [torch.tensor([3e-9])], 1e-2, least=1e-3) == ""
