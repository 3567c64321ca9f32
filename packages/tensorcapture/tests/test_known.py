"""Tensors that a graph makes of constants alone are known; integer tensors without dimensions are indices."""

import pytest
import torch

import intarsia_pyeval
import intarsia_tensorcapture

X = torch.arange(15.0).reshape(5, 3)
PLACES = [torch.tensor(1), torch.tensor(-1, dtype=torch.int32), torch.tensor(2, dtype=torch.int8)]


def run(fn, *calls, code=None):
    """Capture the first call, compare with eager for all of them, and return the targets of the graph."""
    found = intarsia_tensorcapture.capture(fn, calls[0])
    assert [one.code for one in found.breaks] == ([] if code is None else [code])
    if code is not None:
        return []
    linked = intarsia_pyeval.link(found.code, {"__compiled_fn_0": found.graph_module})
    original = fn.__code__
    for args in calls:
        theirs, ours = ([x.clone() for x in args] for _ in range(2))
        want = fn(*theirs)
        fn.__code__ = linked
        try:
            got = fn(*ours)
        finally:
            fn.__code__ = original
        torch.testing.assert_close((got, ours), (want, theirs))
    return [node.target for node in found.graph_module.graph.nodes]


def test_a_tensor_as_an_index():
    def f(x, t):
        return x[t] * 2

    targets = run(f, *[(X, t) for t in PLACES])
    assert targets.count("item") == 1 and targets.count("select") == 1


def test_tensors_among_other_indices():
    def f(x, t):
        return x[1:, t] + x[..., t, None][1:, 0] + x[t, t]

    assert run(f, (X, PLACES[0]), (X, PLACES[1])).count("item") == 2  # one for each size


def test_writes_at_a_tensor():
    def f(x, t):
        x = x * 1
        x[t] = 7.0
        row = x[t]
        row.add_(1)
        x[0, t] = x[1, 1]
        return x

    run(f, (X, PLACES[0]), (X, PLACES[1]))


def test_several_numbers_and_masks_are_no_index():
    def f(x, rows):
        return x[rows] + x[rows, None][:, 0]

    assert "item" not in run(f, (X, torch.tensor([1, -1])), (X, torch.tensor([0, 0])))
    assert "item" not in run(lambda x, mask: x[mask], (X, torch.tensor(True)))
    run(lambda x, mask: x[mask], (X, torch.tensor(1, dtype=torch.uint8)), code="tracer.data_dependent")


def test_the_gradient_of_what_was_looked_up():
    def f(x, t):
        x = x.detach().requires_grad_()
        return torch.autograd.grad((x[t] * x[0]).sum(), x)[0]

    run(f, (X, PLACES[0]), (X, PLACES[1]))


def test_the_loop_of_a_sampler():
    """Steps made of constants: what is asked of them is no break, and no check."""

    def f(x):
        steps = (torch.arange(3) * 2).flip(0)
        steps += 1
        for t in steps:
            place = (steps == t).nonzero()
            place = place[1 if len(place) > 1 else 0].item()
            before = steps[place + 1] if place < 2 else torch.tensor(-1)
            if t > 2:
                x = x + (x[before] if before >= 0 else float(t))
        return x

    targets = run(f, (X,))
    assert "item" not in targets and torch._check not in targets


def test_sizes_that_known_data_decides():
    def f(x):
        t = torch.tensor([2, 0, 2])
        kept = t[t > 0]
        rows, counts = torch.unique(t, return_counts=True)
        (places,) = torch.where(t == 0)
        empty = (t > 5).nonzero()
        return x[kept] * counts.sum() + rows.sum(), torch.repeat_interleave(t, t), x[places], empty, len(kept)

    run(f, (X,))


def test_what_writes_may_have_changed_is_not_known():
    def written(x):
        t = torch.zeros(3, dtype=torch.int64)
        t[1] = x[0, 0].long() + 1
        return x[t[1]] + 1

    def written_by_a_view(x):
        t = torch.zeros(3)
        rest = t[1:]
        t.copy_(x[1])
        return x if rest.sum() > 0 else x + 1

    def written_as_data(x):
        t = torch.zeros(())
        t.data.add_(x[0, 1])
        return x * t.item()

    def written_and_known(x):
        t = torch.zeros(3)
        t[1:].add_(1).mul_(2)
        return x if t.sum() > 3 else x + 1

    assert "item" in run(written, (X,), (X + 1,), (X - 1,))
    run(written_by_a_view, (X,), code="tracer.tensor_branch")
    run(written_as_data, (X,), (X + 1,))
    run(written_and_known, (X,))


@pytest.mark.parametrize("make", [torch.rand, torch.empty, lambda n: torch.ones(n).bernoulli_(), lambda n: X[0] * n])
def test_what_constants_do_not_decide_is_not_known(make):
    def f(x):
        return x if make(3).sum() > 1.5 else x + 1

    state = torch.get_rng_state()
    run(f, (X,), code="tracer.tensor_branch")
    assert torch.equal(torch.get_rng_state(), state)


def test_an_operator_of_a_user_is_not_run_to_know_its_result():
    calls = []

    @torch.library.custom_op("tensorcapture_known::mark", mutates_args=("x",))
    def mark(x: torch.Tensor) -> None:
        calls.append(1)
        x.add_(1)

    def f(x):
        t = torch.zeros(1)
        mark(t)
        return x if t > 0 else x + 1

    run(f, (X,), code="tracer.tensor_branch")
    assert not calls


def test_a_factory_that_is_given_no_generator_has_open_sizes():
    found = intarsia_tensorcapture.capture(
        lambda x: torch.randn(x.shape, generator=None, layout=torch.strided) + x, (X,), dynamic=True
    )
    assert not found.breaks
