"""The sweep over layouts sees what differs, and operators whose layouts once did are as in eager."""

from __future__ import annotations

from pathlib import Path

import torch

from integration.layouts.__main__ import main, rows_of
from integration.layouts.relaid import LAYOUTS, MIXED, relaid

OPERATORS = ("roll", "nn.functional.channel_shuffle", "nn.functional.rrelu", "nn.functional.huber_loss", "angle")


def test_layouts_keep_elements() -> None:
    x = torch.randn(2, 3, 4, 1)
    for name in LAYOUTS.keys() - {"expanded", "one_row", "empty"}:
        made = relaid((x,), name)
        assert made is None or torch.equal(made[0].resolve_neg(), x), name
    assert relaid((x,), "odd_ones")[0].stride() == (12, 4, 1, 77)
    assert relaid((x,), "expanded")[0].stride()[0] == 0
    assert relaid((x,), "bit")[0].is_neg() and relaid((x * 1j,), "bit")[0].is_conj()
    assert all(relaid((x,), name) is None for name in MIXED)


def test_operators_are_as_in_eager(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    chosen = [word for name in OPERATORS for word in ("--op", name)]
    arguments = ["--json", str(path), "--jobs", "1", "--backend", "loops", *chosen]
    assert main(arguments) == 0
    found = {row["sample"]: row["layouts"] for row in rows_of(path).values()}
    assert len(found) >= len(OPERATORS)
    assert {f["result"] for layouts in found.values() for f in layouts.values()} <= {"same", "eager"}
    assert all("channels_last" in layouts or "transposed" in layouts for layouts in found.values())


def test_what_differs_is_told(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"sample": "a", "layouts": {"bit": {"result": "wrong", "why": "bit: strides"}}}\n', encoding="utf-8"
    )
    assert main(["--json", str(path), "--resume", "--jobs", "1", "--op", "no such operator"]) == 1
