"""The sweep's own rules: small models are right, and what isn't right is told."""

from __future__ import annotations

import json

import pytest
import torch

from integration.sweep.__main__ import is_right, main, page
from integration.sweep.check import architectures, difference

FEW = ["gpt2", "clip"]


def test_small_models_are_one_graph_each(tmp_path, capsys):
    assert set(FEW) < set(architectures())
    results = tmp_path / "rows.jsonl"
    assert main([*FEW, "--results", str(results)]) == 0
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    for row in rows:
        assert (row["runs"], row["graphs"], row["fallbacks"]) == (True, 1, 0), row
        assert (row["inference"], row["training"]) == ("right", "right") and row["kernels"] > 0, row
    assert "2 run in eager" in capsys.readouterr().out
    assert main([*FEW, "--results", str(results)]) == 0, "rows that are kept aren't run again"
    assert len(results.read_text().splitlines()) == len(FEW)
    assert all(f"| {name} |" in page(rows) for name in FEW)


@pytest.mark.parametrize(
    ("change", "said"),
    [({"inference": "wrong in call 0: tensor 0"}, False), ({"training": "UnsupportedError: x"}, False),
     ({"training": "no: no gradients"}, True), ({"runs": "ValueError: no small one"}, True), ({}, True)],
)  # fmt: skip
def test_what_is_right(change, said):
    row = {"architecture": "a", "runs": True, "inference": "right", "training": "right", "graphs": 1} | change
    assert is_right(row) is said


def test_differences_are_told():
    x = torch.tensor([1.0, 100.0])
    assert difference([x], [x], 1e-4) == "" and difference([x + 1e-3], [x], 1e-4) == ""
    assert difference([x + 1], [x], 1e-4) == "tensor 0 by 1 of 100"
    assert difference([x], [x.double()], 1e-4).startswith("tensor 0: torch.float32[2], eager torch.float64")
    assert difference([], [x], 1e-4) == "0 tensors, eager 1"
    assert difference([torch.tensor([1e-9])], [torch.tensor([3e-9])], 1e-2, least=1e-3) == ""
