"""Every view op with an inverse obeys its law: the view shows what was written, the rest of the parent is as before."""

import operator

import pytest
import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensorMode

from intarsia_functionalizer import functionalize
from intarsia_functionalizer.views import INVERSES, TURNS_INTO_VIEW
from intarsia_ir import meta
from intarsia_ir.records import Origin

ops = torch.ops.aten

# op -> parent, arguments behind it, item
SAMPLES = {
    ops._conj.default: (torch.randn(3, dtype=torch.complex64), (), None),
    ops._neg_view.default: (torch.randn(3), (), None),
    ops._reshape_alias.default: (torch.randn(2, 3), ([3, 2], [2, 1]), None),
    ops._unsafe_view.default: (torch.randn(2, 3), ([6],), None),
    ops.alias.default: (torch.randn(2, 3), (), None),
    ops.detach.default: (torch.randn(2, 3), (), None),
    ops.diagonal.default: (torch.randn(3, 4, 3), (1, 0, -1), None),
    ops.lift_fresh.default: (torch.randn(3), (), None),
    ops.permute.default: (torch.randn(2, 3, 4), ([2, 0, -2],), None),
    ops.reshape.default: (torch.randn(2, 3), ([3, 2],), None),
    ops.select.int: (torch.randn(2, 3), (-1, 1), None),
    ops.slice.Tensor: (torch.randn(6, 3), (0, 1, 6, 2), None),
    ops.split.Tensor: (torch.randn(5, 3), (2,), 2),
    ops.split_with_sizes.default: (torch.randn(2, 6), ([1, 3, 2], 1), 1),
    ops.squeeze.default: (torch.randn(1, 3, 1), (), None),
    ops.squeeze.dim: (torch.randn(1, 3), (0,), None),
    ops.squeeze.dims: (torch.randn(1, 3, 1), ([0, 2],), None),
    ops.t.default: (torch.randn(2, 3), (), None),
    ops.transpose.int: (torch.randn(2, 3, 4), (0, -1), None),
    ops.unbind.int: (torch.randn(2, 3), (1,), 2),
    ops.unsqueeze.default: (torch.randn(2, 3), (1,), None),
    ops.view.default: (torch.randn(4, 3), ([2, 6],), None),
    ops.view.dtype: (torch.randn(2, 3), (torch.int16,), None),
    ops.view_as_complex.default: (torch.randn(3, 2), (), None),
    ops.view_as_real.default: (torch.randn(3, dtype=torch.complex64), (), None),
}


def test_every_inverse_has_a_sample():
    assert set(SAMPLES) == set(INVERSES)


@pytest.mark.parametrize("op", SAMPLES, ids=str)
@pytest.mark.parametrize("fresh", [False, True], ids=["input", "fresh"])
def test_law(op, fresh, check):
    parent, arguments, item = SAMPLES[op]

    def program(x):
        x = x.clone() if fresh else x
        view = op(x, *arguments)
        view = view if item is None else view[item]
        _ = view.mul_(2) if view.dtype in (torch.float32, torch.complex64) else view.bitwise_xor_(1)
        return [view.clone(), x.clone()]

    check(program, functionalize(by_hand(op, parent, arguments, item, fresh)), (parent,), rtol=0, atol=0)


def by_hand(op, parent, arguments, item, fresh):
    """The same program as a graph: some of the ops never reach a recorder, being composites of others."""
    fake = FakeTensorMode(static_shapes=True).from_tensor(parent)
    graph = fx.Graph()
    x = graph.placeholder("x")
    meta.set_value(x, fake)

    def call(target, *args):
        node = graph.call_function(target, args)
        with fake.fake_mode:
            meta.set_value(node, target(*fx.map_arg(args, meta.value)))
        meta.set_origins(node, [Origin("views.py", 1, "f")])
        return node

    x = call(ops.clone.default, x) if fresh else x
    view = call(op, x, *arguments)
    if item is not None:
        whole, view = view, graph.call_function(operator.getitem, (view, item))
        meta.set_value(view, meta.value(whole)[item])
        meta.set_origins(view, [Origin("views.py", 1, "f")])
    if meta.value(view).dtype in (torch.float32, torch.complex64):
        call(ops.mul_.Tensor, view, 2)
    else:
        call(ops.bitwise_xor_.Scalar, view, 1)
    graph.output((call(ops.clone.default, view), call(ops.clone.default, x)))
    return fx.GraphModule(torch.nn.Module(), graph)


@pytest.mark.parametrize("op", TURNS_INTO_VIEW, ids=str)
def test_changed_metadata_is_a_view(op, check_program):
    arguments = {
        ops.as_strided_.default: ([2], [2]),
        ops.squeeze_.dim: (0,),
        ops.squeeze_.dims: ([0],),
        ops.transpose_.default: (0, 1),
        ops.unsqueeze_.default: (0,),
    }.get(op, ())
    shape = (1, 4) if "squeeze" in str(op) or "as_strided" in str(op) else (2, 2)

    def program(x):
        y = x.clone()
        z = y.view(-1)
        op(y, *arguments)
        y.mul_(2)
        z[0] = 5
        return y, z, y.sin()

    check_program(program, torch.randn(shape))


def test_writes_through_views_without_an_inverse(check_program):
    def program(x, y):
        x.unfold(0, 2, 3).add_(1)
        y.expand(2, 3)  # can't be written, but must not get in the way
        x[1:].as_strided((2, 2), (1, 2)).mul_(3)
        return x[1:] * 1, y

    check_program(program, torch.randn(8), torch.randn(3))


def test_an_input_with_gaps_and_an_offset(check_program):
    def program(x):
        x.unfold(0, 2, 2).add_(1)
        x.t()[0].mul_(2)
        return x * 1, x[1:]

    check_program(program, torch.randn(9, 6)[1:, ::2])
