"""Programs over the CPU and a GPU, captured for a GPU that isn't there and run on the CPU, mean what eager means."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from integration.gpu.mixed import PROGRAMS

MADE_ON_THE_GPU = {
    "mask_of_positions": [],
    "mask_in_a_replayed_graph": [],
    "causal_mask": ["mm.default"],
    "rotary_angles": [],
    "literals": [],
}


@pytest.fixture(scope="module")
def graphs():
    command, root = [sys.executable, "-m", "integration.fake_gpu"], Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {row["name"]: row["graphs"] for row in rows}


#: Their results share nothing, so each has a backward graph of its own; that of the CPU's has no work for the GPU.
APART = {"trained_on_both_sides"}


def test_all_are_like_eager_and_have_kernels(graphs):
    assert graphs.keys() == PROGRAMS.keys()
    for name, made in graphs.items():
        assert len(made) == (2 + (name in APART) if PROGRAMS[name].train else 1), name
        forward, *backward = made
        assert forward["kernels"], name
        assert not backward or any(graph["kernels"] for graph in backward), name


def test_what_only_the_gpu_needs_is_made_there(graphs):
    assert {name: graphs[name][0]["externs"] for name in MADE_ON_THE_GPU} == MADE_ON_THE_GPU


def test_nothing_is_copied_back_for_the_backward_pass(graphs):
    for name in ("trained_with_a_loss_on_the_cpu", "trained_table_on_the_cpu"):
        _, backward = graphs[name]
        assert backward["externs"].count("_to_copy.default") == 1, name  # the gradient
