"""What isn't rewritten, though it looks like it: one limit at a time."""

import pytest
import torch
import torch.nn.functional as F
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from intarsia_ir.aten import parse_ir
from intarsia_rewrites import fold_values, recognise_attention
from intarsia_rewrites._rules import number
from intarsia_rewrites._values import _can_be_full


@pytest.mark.parametrize("value", [None, "mean", (1, 2)])
def test_what_is_no_operand_is_no_number(value: object) -> None:
    assert number(value) is None


def test_numbers_are_themselves() -> None:
    assert [number(v) for v in (True, 2, 0.5, 1j)] == [True, 2, 0.5, 1j]


def stored(n_times: int) -> bool:
    """Tell whether so many copies of a weight of 4 MiB are stored."""
    n = 1 << 20
    copies = ", ".join(["%w"] * n_times)
    gm = parse_ir(f"""// dialect: aten 2
graph(%x: f32[{n_times * n}], %w: f32[{n}]) {{
  %0: f32[{n_times * n}] = aten.cat.default([{copies}])
  %1: f32[{n_times * n}] = aten.add.Tensor(%x, %0)
  return (%1,)
}}
""")
    return bool(fold_values(gm, values={"w": torch.ones(n)}).read)


def test_values_of_twice_the_bytes_are_stored_and_no_more() -> None:
    assert stored(2) and not stored(3)


def test_elements_are_told_on_the_cpu_alone() -> None:
    assert _can_be_full(torch.empty(2, 3))
    assert not _can_be_full(torch.empty(2, 3, device="meta"))
    assert not _can_be_full(torch.empty(3, 2).T) and not _can_be_full(torch.empty(2, dtype=torch.complex64).conj())


@pytest.mark.parametrize("inverted", [True, False])
def test_a_mask_of_what_stays_is_taken_without_its_negation(inverted: bool) -> None:
    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        dropped = torch.logical_not(mask) if inverted else mask
        scores = (torch.matmul(q, k.transpose(-1, -2))).masked_fill(dropped, float("-inf"))
        return torch.matmul(torch.softmax(scores, -1), v)

    gm = fx.symbolic_trace(attention)
    q, mask = torch.randn(2, 4, 8, 16), torch.ones(8, 8, dtype=torch.bool)
    FakeTensorProp(gm, FakeTensorMode()).propagate(q, q, q, mask)
    (output,) = gm.graph.find_nodes(op="output")
    output.args = ((output.args[0],),)
    gm.recompile()
    made = recognise_attention(gm, check=False)
    targets = [node.target for node in made.graph.nodes if node.op == "call_function"]
    assert F.scaled_dot_product_attention in targets
    (placeholder,) = (node for node in made.graph.find_nodes(op="placeholder") if node.target == "mask")
    (call,) = (node for node in made.graph.nodes if node.target is F.scaled_dot_product_attention)
    assert (placeholder in call.all_input_nodes) is inverted
