"""Convolutions move to channels-last memory; values stay, and results keep their strides."""

import operator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from intarsia_ir import aten, meta
from intarsia_ir.records import Origin, Target
from intarsia_rewrites import prefer_channels_last
from intarsia_testkit.fired import Tally

OPS: Any = torch.ops.aten
CONVOLUTIONS = {OPS.convolution.default, OPS.convolution_backward.default}
# tensors on the CPU, beside units that this machine doesn't have
UNITS = Target("cpu", measured=Target("cuda", "sm_90").machine)
fired = Tally(
    "prefer_channels_last: steps between convolutions", ["conv", "relu", "add", "norm", "pool", "flat", "turned"]
)


class Noting(TorchDispatchMode):
    """Writes the aten calls of a function down as a graph with fake values."""

    def __init__(self, graph: torch.fx.Graph, nodes: dict[int, torch.fx.Node]) -> None:
        super().__init__()
        self.graph, self.nodes, self.alive = graph, nodes, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        node = self.graph.call_function(func, *self.named((args, kwargs or {})))
        meta.set_origins(node, (Origin("model.py", 1, "forward", node.name),))
        self.note(node, made)
        for k, part in enumerate(made) if isinstance(made, tuple) else ():
            if isinstance(part, torch.Tensor):
                item = self.graph.call_function(operator.getitem, (node, k))
                meta.set_origins(item, meta.origins(node))
                self.note(item, part)
        return made

    def note(self, node, value):
        meta.set_value(node, value)
        self.nodes[id(value)] = node
        self.alive.append(value)

    def named(self, value):
        return torch.utils._pytree.tree_map(lambda v: self.nodes.get(id(v), v), value)


def traced(function, *inputs):
    """Return FX(aten) of a function that has no effects."""
    graph, nodes = torch.fx.Graph(), {}
    mode = FakeTensorMode()
    fakes = [mode.from_tensor(x) for x in inputs]
    for k, fake in enumerate(fakes):
        node = graph.placeholder(f"x{k}")
        meta.set_value(node, fake)
        nodes[id(fake)] = node
    noting = Noting(graph, nodes)
    with torch.no_grad(), mode, noting:
        made = function(*fakes)
    graph.output(tuple(noting.named(made)))
    return torch.fx.GraphModule({}, graph)


def is_channels_last(x):
    layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    return layout is not None and x.is_contiguous(memory_format=layout)


def turned(function, *inputs, convolutions: int):
    """Run the pass, check it, and return the program with how many copies it has."""
    gm = traced(function, *inputs)
    before = aten.print_ir(gm)
    made = prefer_channels_last(gm, target=UNITS, dtypes=(torch.float32,))
    assert aten.print_ir(gm) == before
    for a, e in zip(aten.interpret(made, *inputs), aten.interpret(gm, *inputs), strict=True):
        torch.testing.assert_close(a, e)
        assert a.stride() == e.stride()
    found = [n for n in made.graph.nodes if n.target in CONVOLUTIONS]
    on_layout = [n for n in found if is_channels_last(meta.value(n.args[0]))]
    assert len(on_layout) == convolutions
    assert prefer_channels_last(made, target=UNITS, dtypes=(torch.float32,)) is made
    return made, sum(n.target is OPS.clone.default for n in made.graph.nodes)


def image(*shape):
    torch.manual_seed(0)
    return torch.randn(shape)


W = image(4, 4, 3, 3)


def test_layout_is_kept_between_convolutions() -> None:
    def two(x, w):
        y = F.relu(F.conv2d(x, w, padding=1))
        return (F.conv2d(y, w, padding=1) + y,)

    made, copies = turned(two, image(2, 4, 6, 6), W, convolutions=2)
    assert copies == 3, made  # the image, the weight once, the result


def test_result_that_is_turned_gets_its_strides_back() -> None:
    def patches(x, w):
        return (F.conv2d(x, w).flatten(2).transpose(1, 2),)

    turned(patches, image(2, 4, 6, 6), W, convolutions=1)


def test_view_that_needs_the_old_layout_gets_it() -> None:
    def flat(x, w):
        return (F.conv2d(x, w).view(2, 64).sum(1),)

    _, copies = turned(flat, image(2, 4, 6, 6), W, convolutions=1)
    assert copies == 3


def test_random_numbers_are_drawn_in_the_old_layout() -> None:
    def noisy(x, w):
        y = F.conv2d(x, w)
        return (y + torch.rand_like(y),)

    gm = traced(noisy, image(2, 4, 6, 6), W)
    made = prefer_channels_last(gm, target=UNITS, dtypes=(torch.float32,))
    (draw,) = [n for n in made.graph.nodes if n.target is OPS.rand_like.default]
    assert meta.value(draw.args[0]).is_contiguous() and meta.value(draw).is_contiguous()


def test_backward_pass_is_on_the_same_layout() -> None:
    def backward(x, w, g):
        made = OPS.convolution(x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
        grads = OPS.convolution_backward(g, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False])
        return made, grads[0], grads[1]

    made, copies = turned(backward, image(2, 4, 6, 6), W, image(2, 4, 6, 6), convolutions=2)
    assert copies == 6, made  # image, weight, gradient; three results


@pytest.mark.parametrize("groups", [2, 4])
@pytest.mark.parametrize("stride", [1, 2])
def test_groups_are_turned_where_no_point_is_left_out(groups: int, stride: int) -> None:
    def grouped(x, w):
        return (F.conv2d(x, w, groups=groups, stride=stride),)

    turned(grouped, image(2, 4, 6, 6), image(4, 4 // groups, 3, 3), convolutions=int(stride == 1))


def test_three_dimensions_and_transposed_ones() -> None:
    turned(lambda x, w: (F.conv3d(x, w).relu(),), image(2, 4, 5, 6, 7), image(3, 4, 2, 3, 3), convolutions=1)
    turned(lambda x, w: (F.conv_transpose2d(x, w, stride=2),), image(2, 4, 6, 6), image(4, 3, 3, 3), convolutions=1)
    turned(lambda x, w: (F.conv1d(x, w),), image(2, 4, 6), image(4, 4, 3), convolutions=0)


def test_windows_of_one_point_of_single_precision_follow_only() -> None:
    one = image(4, 4, 1, 1)
    turned(lambda x, w: (F.conv2d(x, w),), image(2, 4, 6, 6), one, convolutions=0)
    turned(lambda x, w, v: (F.conv2d(F.conv2d(x, w), v),), image(2, 4, 6, 6), W, one, convolutions=2)
    half = traced(lambda x, w: (F.conv2d(x, w),), image(2, 4, 6, 6).half(), one.half())
    assert prefer_channels_last(half, target=UNITS) is not half


def test_other_devices_and_types_are_left_alone() -> None:
    gm = traced(lambda x, w: (F.conv2d(x, w),), image(2, 4, 6, 6), W)
    assert prefer_channels_last(gm, target=Target("cuda", "sm_90")) is gm
    assert prefer_channels_last(gm, target=Target("cpu", "avx512"), dtypes=(torch.float32,)) is gm  # no matrix units
    assert prefer_channels_last(gm, target=UNITS) is gm
    assert prefer_channels_last(gm, target=UNITS, dtypes=(torch.float32,), fuel=0) is gm


STEPS = {
    "relu": lambda x, w: F.relu(x),
    "add": lambda x, w: x + x.flip(-1),
    "norm": lambda x, w: (x - x.mean((0, 2, 3), keepdim=True)) * w[:, 0, 0, 0].reshape(1, -1, 1, 1),
    "pool": lambda x, w: F.max_pool2d(x, 3, 1, 1),
    "flat": lambda x, w: x.flatten(2).sin().unflatten(2, x.shape[2:]),
    "turned": lambda x, w: x.transpose(2, 3).clone(memory_format=torch.contiguous_format),
}


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.lists(st.sampled_from(["conv", *STEPS]), min_size=1, max_size=6), st.sampled_from([1, 2, 5]))
def test_random_networks(steps: list[str], size: int) -> None:
    def network(x, w):
        for step in steps:
            x = F.conv2d(x, w, padding=1) if step == "conv" else STEPS[step](x, w)
        return x, x.sum(1)

    for step in steps:
        fired.count(step)
    turned(network, image(size, 4, size, size), W, convolutions=steps.count("conv"))


def test_every_step_was_drawn() -> None:
    assert not fired.missing()
