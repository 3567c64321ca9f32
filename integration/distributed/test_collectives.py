"""What exchanges data does as in eager, in one graph where a graph can hold it, and meets ranks that run in eager."""

from __future__ import annotations

import datetime
import re
import warnings

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

import intarsia
from integration.distributed import ranks

RAISE = {"on_error": "raise"}


def outcomes(fn, rank, *, graded):
    """Return what three calls give and leave in their input, with gradients where there are some."""
    found = []
    for step in range(3):
        x = torch.arange(16.0).reshape(4, 4).remainder(5) + step - rank
        x.requires_grad_(graded)
        results = fn(rank, x)
        results = results if isinstance(results, tuple) else (results,)
        tensors = [r for r in results if isinstance(r, torch.Tensor)]
        if graded:
            sum((r * r).sum() for r in tensors).backward()
        found.append([*[r.detach() + 0 if isinstance(r, torch.Tensor) else r for r in results], x.detach(), x.grad])
    return found


def in_eager_and_compiled(rank, compiling):
    from integration.distributed import programs

    programs.MESHES[:] = [dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))]
    results = {}
    cases = [(fn, False) for fn in (*programs.WHOLE, *programs.BROKEN)] + [(fn, True) for fn in programs.GRADED]
    for fn, graded in cases:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.filterwarnings("ignore", ".*an autograd kernel was not registered")
            expected = outcomes(fn, rank, graded=graded)
            intarsia.reset()
            fast = intarsia.compile(fn, options=RAISE) if rank in compiling else fn
            found = outcomes(fast, rank, graded=graded)
        results[fn.__name__, graded] = expected, found, intarsia.stats()
    return results


@pytest.mark.parametrize("compiling", [(0, 1), pytest.param((0,), marks=pytest.mark.slow), (1,)])
def test_ranks_meet_and_find_what_eager_finds(tmp_path, compiling):
    from integration.distributed import programs

    whole = {fn.__name__ for fn in programs.WHOLE}
    found = ranks.run(in_eager_and_compiled, tmp_path, compiling)
    for rank, results in enumerate(found):
        for (name, graded), (expected, got, counts) in results.items():
            torch.testing.assert_close(got, expected, rtol=0, atol=0, msg=lambda m, n=name: f"{n}: {m}")
            if rank in compiling and name in whole and not (graded and name == "sent_by_one"):
                assert (counts.graphs, counts.frames_compiled, counts.frames_eager) == (1, 1, 0), (name, graded, counts)
            assert counts.fallbacks == 0, (name, counts)


def two_groups(rank):
    groups = [dist.new_group([0]), dist.new_group([0, 1])]

    def fn(x, group):
        y = x + rank
        dist.all_reduce(y, group=group)
        return y

    fast = intarsia.compile(fn, options=RAISE)
    x = torch.ones(3)
    found = [(fast(x, group), fn(x, group)) for group in reversed(groups) for _ in range(2)]
    return found, intarsia.stats().graphs


@pytest.mark.filterwarnings("ignore:Running .* on global rank")
def test_groups_are_constants_that_are_guarded(tmp_path):
    for rank, (found, graphs) in enumerate(ranks.run(two_groups, tmp_path)):
        for got, expected in found:
            assert torch.equal(got, expected), rank
        assert graphs == 2  # one a group; rank 1 isn't in the first one, and has a graph of the rest


def recompiling(rank):
    """One rank gets other sizes, types and modes from step to step."""

    def fn(x, scale):
        total = (x * scale).sum().reshape(1)
        dist.all_reduce(total)
        return x + total

    fast = intarsia.compile(fn, options={"recompile_limit": 3, "on_error": "eager"}, dynamic=False)
    results = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(6):
            x = torch.ones(2 + step if rank == 1 else 2)
            results.append((fast(x, 2.0), fn(x, 2.0)))
    return results, intarsia.stats()


def test_a_rank_that_recompiles_and_gives_up_meets_the_others(tmp_path):
    first, second = ranks.run(recompiling, tmp_path)
    for results, _ in (first, second):
        for got, expected in results:
            assert torch.equal(got, expected)
    assert first[1].frames_compiled == 1 and second[1].frames_compiled == 3 and second[1].frames_eager > 0


def failing(rank):
    group = dist.new_group([0, 1])

    def fn(x):
        y = x * 2
        dist.all_reduce(y, group=group)
        return y + 1

    fast = intarsia.compile(fn, options=RAISE)
    fast(torch.ones(2))
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=2), group)
    if rank == 1:
        return None  # the other one's next call has nobody to meet
    try:
        fast(torch.ones(2))
    except RuntimeError as error:
        return str(error), intarsia.stats().fallbacks
    return "nothing was raised", 0


def test_what_eager_raises_is_raised_and_nothing_runs_again(tmp_path):
    text, fallbacks = ranks.run(failing, tmp_path)[0]
    assert re.search("timed out|timeout", text, re.IGNORECASE) and fallbacks == 0, text


def several(rank, x):
    world = dist.group.WORLD
    outputs = [functional.all_gather_tensor(x + k * rank, 0, world) for k in range(3)]
    parts = [functional.reduce_scatter_tensor(y * (rank + 1), "sum", 0, world) for y in outputs]
    sums = [functional.all_reduce(part[:, : k + 1].contiguous(), "sum", world) for k, part in enumerate(parts)]
    return (*outputs, *parts, *sums)


def together(rank):
    x = torch.arange(16.0).reshape(4, 4).remainder(5) - rank
    explanation = intarsia.explain(several, bucket_bytes=1 << 20, options=RAISE)(rank, x)
    (graph,) = explanation.graphs
    return [y + 0 for y in explanation.result], [y + 0 for y in several(rank, x)], graph.collectives


def test_what_is_sent_together_arrives_where_it_belongs(tmp_path):
    for got, expected, collectives in ranks.run(together, tmp_path):
        torch.testing.assert_close(got, expected, rtol=0, atol=0)
        assert [c.exchange.kind for c in collectives] == ["all_gather", "reduce_scatter", "all_reduce"]
        assert all(c.exchange.ranks == 2 and c.predicted_us > 0 for c in collectives)
        sizes = [4 * 3 * 2 * 16, 4 * 3 * 2 * 16, 4 * 4 * (1 + 2 + 3)]
        assert [c.exchange.bytes for c in collectives] == sizes
