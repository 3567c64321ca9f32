"""The study's records: complete, replayable, and written as Parquet where PyArrow is."""

from __future__ import annotations

import importlib.util
import json

import pytest
import torch

from intarsia_fuser import FusionPlan, Greedy, NoFusion
from intarsia_ir.errors import UnsupportedError
from intarsia_study import programs_of, spearman, study, write_parquet


@pytest.fixture(scope="module")
def program():
    (found,) = programs_of(lambda x: torch.softmax(x + 1, -1), torch.randn(16, 16), name="softmax")
    return found


def test_a_record_holds_plan_features_and_times(program):
    none, greedy = study(program, [NoFusion(), Greedy()], rounds=2)
    assert (none.program, none.policy, greedy.kernels) == ("softmax", "no_fusion 1", 1)
    for record in (none, greedy):
        plan = FusionPlan.from_json(record.plan)
        assert program.plan(plan).decisions == plan.decisions
        assert len(json.loads(record.features)) == len(json.loads(record.kernel_us)) == record.kernels
        assert record.measured_us is not None and record.best_us is not None and record.best_us > 0
        assert record.measured_us == pytest.approx(sum(us for _, us in json.loads(record.kernel_us)), abs=0.1)


def test_without_rounds_nothing_is_measured(program):
    (record,) = study(program, [Greedy()], rounds=0)
    assert (record.measured_us, record.best_us, record.kernel_us) == (None, None, "[]") and record.predicted_us > 0


def test_rank_correlation():
    assert spearman([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)
    assert spearman([1, 1, 2, 2], [1, 1, 2, 2]) == pytest.approx(1.0)
    assert spearman([1, 1, 1], [1, 2, 3]) == 0.0


def test_a_parquet_file_or_the_name_of_what_is_missing(program, tmp_path):
    records = study(program, [Greedy()], rounds=0)
    path = tmp_path / "study.parquet"
    if importlib.util.find_spec("pyarrow") is None:
        with pytest.raises(UnsupportedError) as caught:
            write_parquet(records, path)
        assert caught.value.code == "study.no_parquet"
        return
    import pyarrow.parquet

    (row,) = pyarrow.parquet.read_table(path if write_parquet(records, path) is None else "").to_pylist()
    assert row["policy"] == "greedy 1" and FusionPlan.from_json(row["plan"]).after.kernels == row["kernels"]
