"""Every `_foreach_` op taken apart computes, and writes, what it does whole."""

import pytest
import torch

from intarsia_functionalizer import default_decompositions
from intarsia_ir import aten
from intarsia_recorder import record

ROWS = {op: f for op, f in default_decompositions().items() if op._schema.name.startswith("aten::_foreach_")}
READS_DATA = {
    "_foreach_addcdiv.Tensor",
    "_foreach_addcdiv_.Tensor",
    "_foreach_addcmul.Tensor",
    "_foreach_addcmul_.Tensor",
}


def sample(op, dtype, brief=False):
    """Return arguments for an op, by the types of its parameters; in brief, without what has a default."""
    torch.manual_seed(0)
    values = {
        "List[Tensor]": lambda: [torch.rand(3, 4).to(dtype) + 1, torch.rand(5).to(dtype) + 1],
        "List[number]": lambda: [0.3, 0.7],
        "number": lambda: 0.3,
        "Tensor": lambda: torch.tensor(0.3, dtype=dtype),
        "bool": lambda: False,
        "Optional[int]": lambda: None,
    }
    if op._schema.name == "aten::_foreach_mm":
        values["List[Tensor]"] = lambda: [torch.rand(3, 3).to(dtype), torch.rand(5, 5).to(dtype)]
    made = [(p, values[str(p.type)]()) for p in op._schema.arguments if not (brief and p.has_default_value())]
    keywords = {p.name: value for p, value in made if p.kwarg_only}
    return [value for p, value in made if not p.kwarg_only], keywords


def test_only_what_reads_data_stays_whole():
    missing = set()
    for name in dir(torch):
        packet = getattr(torch.ops.aten, name) if name.startswith("_foreach_") and hasattr(torch, name[9:]) else None
        for overload in packet.overloads() if packet is not None else ():
            if "out" not in overload and getattr(packet, overload) not in ROWS:
                missing.add(f"{name}.{overload}")
    assert missing <= READS_DATA


@pytest.mark.parametrize("dtype, brief", [(torch.float32, True), (torch.bfloat16, False)], ids=str)
@pytest.mark.parametrize("op", ROWS, ids=str)
def test_parts_equal_the_whole(op, dtype, brief):
    args, keywords = sample(op, dtype, brief)
    recorded = record(lambda *given: op(*given, **keywords), args, decompositions=default_decompositions())
    targets = [n.target for n in recorded.graph_module.graph.nodes if n.op == "call_function"]
    assert targets and not any("_foreach_" in str(target) for target in targets)
    mine, theirs = sample(op, dtype, brief)[0], sample(op, dtype, brief)[0]
    flat = torch.utils._pytree.tree_leaves(mine)
    actual = aten.interpret(recorded.graph_module, *flat)
    expected = op(*theirs, **keywords)
    torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)
    if expected is not None:
        torch.testing.assert_close(list(actual), list(expected), rtol=0, atol=0, equal_nan=True)


def test_lists_of_different_lengths_stay_whole():
    f = ROWS[torch.ops.aten._foreach_add.List]
    assert f([torch.ones(2)], [torch.ones(2)] * 2) is NotImplemented


@pytest.mark.parametrize(
    "gradient, found_inf, inv_scale",
    [
        (torch.ones(2), torch.zeros(1), torch.ones(1, dtype=torch.float64)),
        (torch.ones(2), torch.zeros(1, dtype=torch.float64), torch.ones(1)),
        (torch.ones(2), torch.zeros(1), torch.ones(2)),
        (torch.ones(2, dtype=torch.int64), torch.zeros(1), torch.ones(1)),
    ],
    ids=["type of the scale", "type of the note", "two scales", "integers"],
)
def test_what_eager_refuses_to_unscale_stays_whole(gradient, found_inf, inv_scale):
    op = torch.ops.aten._amp_foreach_non_finite_check_and_unscale_.default
    with pytest.raises(RuntimeError):
        op([gradient], found_inf, inv_scale)
    assert default_decompositions()[op]([gradient], found_inf, inv_scale) is NotImplemented
