"""Ranks that run one program compile one program: equal keys apart, and nothing to do where another has done it."""

from __future__ import annotations

import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

import intarsia
from integration.distributed import ranks


def program(x, w):
    """A forward and a backward graph, each with a collective, and kernels around these."""
    y = functional.all_reduce(torch.relu(x @ w), "sum", dist.group.WORLD)
    return (y.sin() * x).sum()


def compiling(rank, folder):
    os.environ["INTARSIA_WARM_START"] = "1"
    os.environ["INTARSIA_CACHE_DIR"] = folder.format(rank=rank)
    x, w = torch.ones(4, 4) + rank, torch.eye(4).requires_grad_()
    intarsia.compile(program, options={"on_error": "raise"})(x, w).backward()
    keys = sorted(path.name for path in Path(folder.format(rank=rank)).rglob("*") if len(path.name) == 64)
    expected = torch.eye(4).requires_grad_()
    program(x, expected).backward()
    torch.testing.assert_close(w.grad, expected.grad)
    return keys, intarsia.stats()


def test_keys_agree_across_ranks_and_one_cache_serves_all(tmp_path):
    (first, cold), (second, _) = ranks.run(compiling, tmp_path, str(tmp_path / "apart{rank}"))
    assert len(first) == 3  # the plan, and a library for each graph
    assert first == second and (cold.graphs, cold.warm_graphs) == (1, 0)
    for keys, counts in ranks.run(compiling, tmp_path, str(tmp_path / "apart0"), apart=True):
        assert keys == first and (counts.graphs, counts.warm_graphs) == (1, 1)
