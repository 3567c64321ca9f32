"""Every fused step of an optimizer, taken apart, writes what it writes whole."""

import pytest
import torch

from intarsia_functionalizer.decompositions import default_decompositions
from intarsia_ir import aten
from intarsia_recorder import record

ops = torch.ops.aten
ADAM = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8}
SGD = {"lr": 0.1, "dampening": 0.3}
CASES = {
    "adam": (ops._fused_adam_, 4, {**ADAM, "weight_decay": 0.1, "amsgrad": False, "maximize": False}),
    "adam amsgrad": (ops._fused_adam_, 5, {**ADAM, "weight_decay": 0.0, "amsgrad": True, "maximize": True}),
    "adamw": (ops._fused_adamw_, 4, {**ADAM, "weight_decay": 0.1, "amsgrad": False, "maximize": True}),
    "sgd": (
        ops._fused_sgd_,
        2,
        {**SGD, "weight_decay": 0.1, "momentum": 0.0, "nesterov": False, "maximize": True, "is_first_step": True},
    ),
    "sgd first": (
        ops._fused_sgd_,
        3,
        {**SGD, "weight_decay": 0.0, "momentum": 0.9, "nesterov": False, "maximize": False, "is_first_step": True},
    ),
    "sgd later": (
        ops._fused_sgd_,
        3,
        {**SGD, "weight_decay": 0.1, "momentum": 0.9, "nesterov": True, "maximize": False, "is_first_step": False},
    ),
    "adagrad": (
        ops._fused_adagrad_,
        3,
        {"lr": 0.1, "lr_decay": 0.2, "weight_decay": 0.1, "eps": 1e-8, "maximize": False},
    ),
}


def lists(packet, count, dtype):
    """Return the lists of tensors of one step over two parameters."""
    torch.manual_seed(0)
    made = [[torch.rand(37, dtype=dtype), torch.rand(3, 5, dtype=dtype)] for _ in range(count)]
    steps = [torch.tensor(3.0), torch.tensor(7.0)]
    if packet in (ops._fused_adam_, ops._fused_adamw_):
        return [*made, *([[]] if count == 4 else []), steps]
    return [*made, steps] if packet is ops._fused_adagrad_ else [*made, *([[]] if count == 2 else [])]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("has_tensor_rate", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_parts_equal_the_whole(name, has_tensor_rate, dtype):
    packet, count, numbers = CASES[name]
    op = packet.tensor_lr if has_tensor_rate else packet.default
    numbers = {**numbers, "lr": torch.tensor(0.1)} if has_tensor_rate else numbers
    recorded = record(
        lambda *given: op(*given, **numbers), lists(packet, count, dtype), decompositions=default_decompositions()
    )
    assert not any("_fused_" in str(n.target) for n in recorded.graph_module.graph.nodes)
    mine, theirs = lists(packet, count, dtype), lists(packet, count, dtype)
    aten.interpret(recorded.graph_module, *torch.utils._pytree.tree_leaves(mine))
    op(*theirs, **numbers)
    torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-7)


def both(name, dtype, **scaling):
    """Return what the parts of a step write and what it writes whole."""
    packet, count, numbers = CASES[name]
    recorded = record(
        lambda *given: packet.default(*given, **numbers, **scaling),
        lists(packet, count, dtype),
        decompositions=default_decompositions(),
    )
    assert not any("_fused_" in str(n.target) for n in recorded.graph_module.graph.nodes)
    mine, theirs = lists(packet, count, dtype), lists(packet, count, dtype)
    aten.interpret(recorded.graph_module, *torch.utils._pytree.tree_leaves(mine))
    # eager's SGD of half types leaves parameters as they are, but for the last few elements, and reads fresh memory
    in_float32 = packet is ops._fused_sgd_ and dtype in (torch.float16, torch.bfloat16)
    if in_float32:
        theirs = [[x.float() for x in part] for part in theirs]
    packet.default(*theirs, **numbers, **scaling)
    return mine, [[x.to(dtype) for x in part] for part in theirs] if in_float32 else theirs


@pytest.mark.parametrize("has_tensor_rate", [False, True])
def test_decay_keeps_infinities_and_rounds_as_eager_does(has_tensor_rate):
    """Where gradients are zero, it is all that AdamW does."""
    packet, count, numbers = CASES["adamw"]
    op = packet.tensor_lr if has_tensor_rate else packet.default
    numbers = {**numbers, "lr": torch.tensor(0.1)} if has_tensor_rate else numbers

    def given():
        made = lists(packet, count, torch.float32)
        for zero in (x for part in made[1:count] for x in part):
            zero.zero_()
        made[0][0][:2] = torch.tensor([torch.inf, -torch.inf])
        return made

    recorded = record(lambda *each: op(*each, **numbers), given(), decompositions=default_decompositions())
    mine, theirs = given(), given()
    aten.interpret(recorded.graph_module, *torch.utils._pytree.tree_leaves(mine))
    op(*theirs, **numbers)
    assert all(map(torch.equal, mine[0], theirs[0]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_half_types_are_computed_in_float32_and_rounded_once(name, dtype):
    for ours, eagers in zip(*both(name, dtype), strict=True):
        torch.testing.assert_close(ours, eagers, rtol=torch.finfo(dtype).eps, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("found", [0.0, 1.0, None])
@pytest.mark.parametrize("name", CASES)
def test_a_scale_is_divided_out_and_a_step_may_be_skipped(name, found, dtype):
    """The gradients keep the quotients; of a step that is skipped nothing is written."""
    scaling = {"grad_scale": torch.full((), 4.0)}
    if found is not None:
        scaling["found_inf"] = torch.full((), found)
    mine, theirs = both(name, dtype, **scaling)
    if found:
        leaves = torch.utils._pytree.tree_leaves
        assert all(map(torch.equal, leaves(theirs), leaves(lists(*CASES[name][:2], dtype))))
    tolerance = torch.finfo(dtype).eps if dtype is torch.bfloat16 else 1e-6
    for ours, eagers in zip(mine, theirs, strict=True):
        torch.testing.assert_close(ours, eagers, rtol=tolerance, atol=1e-7)
