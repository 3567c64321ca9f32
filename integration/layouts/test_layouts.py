"""The sweep over layouts sees what differs, and operators whose layouts once did are as in eager."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from integration.layouts import __main__ as sweep
from integration.layouts import judge
from integration.layouts.__main__ import main, rows_of
from integration.layouts.relaid import LAYOUTS, MIXED, relaid
from integration.opinfo.samples import Sample

OPERATORS = ("roll", "nn.functional.channel_shuffle", "nn.functional.rrelu", "nn.functional.huber_loss", "angle")

MISMATCHED = ("addmv", "fmod", "index_add", "index_copy", "index_reduce.amin", "masked_scatter")


def test_layouts_keep_elements() -> None:
    x = torch.randn(2, 3, 4, 1)
    for name in LAYOUTS.keys() - {"expanded", "one_row", "empty"}:
        assert torch.equal(relaid((x,), name)[0].resolve_neg(), x), name
    assert relaid((x,), "odd_ones")[0].stride() == (12, 4, 1, 77)
    assert relaid((x,), "expanded")[0].stride()[0] == 0
    assert relaid((x,), "bit")[0].is_neg() and relaid((x * 1j,), "bit")[0].is_conj()
    assert all(relaid((x,), name) is None for name in MIXED)


def test_operators_are_as_in_eager(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    chosen = [word for name in OPERATORS for word in ("--op", name)]
    arguments = ["--json", str(path), "--jobs", "1", "--backend", "loops", *chosen]
    assert main(arguments) == 0
    layouts_of = {row["sample"]: row["layouts"] for row in rows_of(path).values()}
    assert len(layouts_of) >= len(OPERATORS)
    for layouts in layouts_of.values():
        assert "channels_last" in layouts or "transposed" in layouts
        assert layouts["contiguous"]["result"] == "same"
        assert {verdict["result"] for verdict in layouts.values()} <= {"same", "eager"}


@pytest.mark.slow
def test_what_kills_eager_too_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"  # the gradient of the distances between no rows
    arguments = ["--json", str(path), "--jobs", "1", "--backward", "--dtype", "float32", "--op", "nn.functional.pdist"]
    assert main(arguments) == 0
    (row,) = rows_of(path).values()
    assert row["layouts"]["all"]["result"] == "eager" and "as eager's does" in row["layouts"]["all"]["why"]


def test_gradients_may_be_as_inexact_as_those_of_eager(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    arguments = ["--json", str(path), "--jobs", "1", "--backward", "--dtype", "float32", "--op", "kron"]
    assert main(arguments) == 0
    (row,) = rows_of(path).values()
    assert row["layouts"]["contiguous"]["result"] == "same"
    assert {verdict["result"] for verdict in row["layouts"].values()} <= {"same", "eager"}


@pytest.mark.parametrize("form", [[], ["--inplace"]], ids=["new", "in place"])
def test_operands_of_other_shapes_are_refused_as_in_eager(form: list[str], tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    chosen = [word for name in MISMATCHED for word in ("--op", name)]
    assert main(["--json", str(path), "--jobs", "1", "--mismatched", "--dtype", "float32", *chosen, *form]) == 0
    assert sum(len(row["layouts"]) for row in rows_of(path).values()) > 100


def test_what_differs_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"sample": "a", "layouts": {"bit": {"result": "wrong", "why": "bit: strides"}}}\n', encoding="utf-8"
    )
    assert main(["--json", str(path), "--resume", "--jobs", "1", "--op", "no such operator"]) == 1
    assert "WRONG a, bit: bit: strides" in capsys.readouterr().out


def _sample(function) -> Sample:
    return Sample("float32 cos 0", type("Op", (), {"name": "cos", "op": staticmethod(torch.cos)}), function, ROWS)


ROWS = (torch.arange(6.0).reshape(3, 2), (), {})


def test_a_layout_that_stops_the_device_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x):
        if x.shape[0] == 1:
            raise RuntimeError("device-side assert triggered")
        return x.cos()

    monkeypatch.setattr(judge, "_device_is_lost", lambda: True)
    with pytest.raises(judge.DeviceLost) as caught:
        judge.Judge()(_sample(function))
    assert (caught.value.layout, caught.value.verdict["result"]) == ("one_row", "eager")
    lost = {caught.value.layout: caught.value.verdict}
    verdicts = judge.Judge(backend="loops")(_sample(function), lost)
    assert verdicts.pop("one_row") == caught.value.verdict
    assert {verdict["result"] for verdict in verdicts.values()} == {"same"} and "transposed" in verdicts


def test_a_worker_that_lost_its_device_goes_on_without_the_layout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    verdict, lost_at_calls = {"result": "eager", "why": "the GPU stopped"}, []
    # a worker is a process of its own, and sets these; here they are put back
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(torch, "set_num_threads", lambda n: None)

    def judged(self, sample, lost):
        lost_at_calls.append(dict(lost))
        if "one_row" not in lost:
            raise judge.DeviceLost("one_row", verdict)
        return {**lost, "empty": {"result": "same"}}

    monkeypatch.setattr(judge.Judge, "__call__", judged)
    path = tmp_path / "rows.jsonl"
    options = sweep._parser().parse_args(["--json", str(path), "--worker", "0", "--jobs", "1", "--op", "cos"])
    options.until, options.dtype = float("inf"), ["float32"]
    assert sweep.work(options) == sweep.LOST and "worker" in next(iter(rows_of(path).values()))
    assert sweep.work(options) == 0
    assert lost_at_calls == [{}, {"one_row": verdict}]
    (row,) = rows_of(path).values()
    assert row["layouts"] == {"one_row": verdict, "empty": {"result": "same"}}
