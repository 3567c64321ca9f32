"""Ranges of generated functions, and names of kernels."""

from __future__ import annotations

import torch

from intarsia_ir.records import Origin
from intarsia_runtime.profiling import LONGEST, in_range, kernel_label


def test_a_long_name_is_cut() -> None:
    origins = [Origin("model.py", n, "f", "mul") for n in range(100)]
    assert len(kernel_label("seg0", origins)) == LONGEST and kernel_label("seg0", origins).endswith(" ...")
    assert kernel_label("seg0", []) == "intarsia kernel seg0"


def test_a_range_is_around_calls_that_are_profiled() -> None:
    run = in_range(lambda x: (x + 1,), "mine")
    assert run(torch.ones(1))[0].item() == 2
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        assert run(torch.ones(1))[0].item() == 2
    assert "mine" in [event.name for event in profiler.events()]
