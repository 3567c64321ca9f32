"""Sizes that depend on data: where checks stand, and what recordings of the same inputs have in common."""

import operator

import pytest
import torch

from intarsia_ir.errors import UnsupportedError
from intarsia_recorder import record
from intarsia_shapes import ShapeEnv, fake_mode

aten = torch.ops.aten


def recorded(program, *inputs):
    mode = fake_mode(ShapeEnv())
    given = [mode.from_tensor(x, static_shapes=True) for x in inputs]
    return list(record(program, given, fake_mode=mode).graph_module.graph.nodes)


def test_checks_come_before_what_relies_on_them():
    def program(x, n):
        y = x.sin()
        size = n.item()
        torch._check(size >= 0)
        torch._check(size <= 9)
        return x[:size] * 2, y

    nodes = recorded(program, torch.randn(9), torch.tensor(3))
    targets = [node.target for node in nodes]
    checks = [k for k, target in enumerate(targets) if target == aten._assert_scalar.default]
    assert len(checks) == 2
    assert targets.index(aten._local_scalar_dense.default) < min(checks)
    assert max(checks) < targets.index(aten.slice.Tensor)


def test_what_an_op_assumes_is_checked_before_it():
    nodes = recorded(lambda x, y: x[x > 0] + y[y > 0], torch.randn(6), torch.randn(6))
    targets = [node.target for node in nodes]
    assert targets.index(aten._assert_scalar.default) < targets.index(aten.add.Tensor)
    (check,) = [node for node in nodes if node.target == aten._assert_scalar.default]
    assert check.args[0].target is operator.eq


def test_a_check_of_two_relations():
    def program(x, n):
        size = n.item()
        torch._check((size >= 0) & (size <= 9))
        return x * size

    targets = [node.target for node in recorded(program, torch.randn(9), torch.tensor(3))]
    assert operator.and_ in targets and aten._assert_scalar.default in targets


def test_recordings_of_the_same_inputs_have_sizes_of_their_own():
    """A fake tensor remembers the size of its `nonzero`, which another graph doesn't have."""
    mode = fake_mode(ShapeEnv())
    mask = mode.from_tensor(torch.tensor([True, False, True]), static_shapes=True)
    for _ in range(2):
        done = record(lambda m: torch.ones(m.nonzero().shape[0]) * 2, (mask,), fake_mode=mode)
        (made,) = [node for node in done.graph_module.graph.nodes if node.target == aten.ones.default]
        assert made.args[0][0].target == aten.sym_size.int


def test_a_question_about_data_is_refused():
    def program(x):
        return x * 2 if x[x > 0].shape[0] == 3 else x

    with pytest.raises(UnsupportedError) as caught:
        recorded(program, torch.randn(9))
    assert caught.value.code == "recorder.data_dependent"
