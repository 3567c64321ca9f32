"""The graph of a capture: its nodes, inputs, results, values and origins."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F
from tensor_executor import Executor
from torch import nn

import intarsia_pyeval
import intarsia_tensorcapture
from intarsia_ir import meta
from intarsia_ir.records import ArgumentSource, AttributeSource, CellSource, Fresh, GlobalSource, GuardKind, Role

WEIGHT = torch.arange(3.0)


def targets(capture):
    """Return the targets of the calls of a graph."""
    return [node.target for node in capture.graph_module.graph.nodes if node.op.startswith("call_")]


def test_softmax():
    """The example of the README: two inputs, four calls, no break."""

    def f(x, y):
        return F.softmax(x * 2 + torch.sin(y), -1)

    x, y = torch.randn(2, 3), torch.randn(2, 3)
    found = intarsia_tensorcapture.capture(f, (x, y))
    assert not found.breaks
    assert targets(found) == [operator.mul, torch.sin, operator.add, F.softmax]
    assert [spec.source for spec in found.signature.inputs] == [ArgumentSource("x"), ArgumentSource("y")]
    assert found.signature.outputs == (Fresh(0, (3, 1), False),)
    (got,) = found.graph_module(x, y)
    torch.testing.assert_close(got, f(x, y))


def test_methods_stay_method_calls():
    def f(x):
        return x.sum(dim=0).view(-1, 1).T

    found = intarsia_tensorcapture.capture(f, (torch.randn(2, 3),))
    assert targets(found) == ["sum", "view", getattr]


def test_nodes_know_value_and_user_line():
    def f(x):
        y = x + 1
        return nn.functional.relu(y)

    found = intarsia_tensorcapture.capture(f, (torch.randn(2, 3),))
    line = f.__code__.co_firstlineno
    for node in found.graph_module.graph.nodes:
        if node.op != "output":
            assert meta.value(node).shape == (2, 3)
    lines = [meta.origins(node)[0].line - line for node in found.graph_module.graph.nodes if node.op != "output"]
    assert lines == [1, 1, 2]
    (origin,) = meta.origins(next(iter(found.graph_module.graph.nodes)))
    assert (origin.file, origin.op) == (__file__, "x")


def test_library_code_has_the_line_that_called_it():
    layer = nn.Sequential(nn.Linear(3, 4), nn.ReLU())

    def f(x):
        return layer(x)

    found = intarsia_tensorcapture.capture(f, (torch.randn(2, 3),))
    files = {o.file for node in found.graph_module.graph.nodes for o in meta.origins(node)}
    assert files == {__file__}


def test_parameters_and_buffers_are_inputs():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval()
    found = intarsia_tensorcapture.capture(model, (torch.randn(2, 3),))
    roles = [(spec.name, spec.role, spec.requires_grad) for spec in found.signature.inputs]
    assert roles == [
        ("args_0", Role.USER, False),
        ("self_0_weight", Role.PARAMETER, True),
        ("self_0_bias", Role.PARAMETER, True),
        ("self_1_running_mean", Role.BUFFER, False),
        ("self_1_running_var", Role.BUFFER, False),
        ("self_1_weight", Role.PARAMETER, True),
        ("self_1_bias", Role.PARAMETER, True),
    ]
    assert len(found.example_inputs) == len(roles)


def test_closure_and_global_tensors_are_inputs():
    scale = torch.ones(3)

    def f(x):
        return x * scale + WEIGHT

    found = intarsia_tensorcapture.capture(f, (torch.randn(3),))
    sources = [spec.source for spec in found.signature.inputs]
    assert sources == [ArgumentSource("x"), CellSource("scale"), GlobalSource("WEIGHT")]


def test_one_tensor_in_two_places_is_one_input():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(3, 3, bias=False)
            self.b = nn.Linear(3, 3, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x))

    found = intarsia_tensorcapture.capture(Tied(), (torch.randn(2, 3),))
    assert len(found.signature.inputs) == 2
    assert any(g.kind is GuardKind.ALIASING and g.same for g in found.guards)


def test_an_unused_tensor_is_no_input():
    def f(x, y):
        return x + 1, y

    found = intarsia_tensorcapture.capture(f, (torch.randn(3), torch.randn(3)))
    assert [spec.name for spec in found.signature.inputs] == ["x"]


def test_facts_need_no_nodes():
    def f(x):
        if x.dim() == 2 and x.is_floating_point() and x.numel() > 5 and x.size(0) == x.shape[0] and len(x) == 2:
            return x + x.stride(0) + x.element_size()
        return x

    found = intarsia_tensorcapture.capture(f, (torch.randn(2, 3),))
    assert targets(found) == [operator.add, operator.add]


def test_several_results():
    def f(x):
        values, indices = x.max(dim=1)
        top = torch.topk(x, 2)
        return values, indices, top.values, top, torch.split(x, 1)

    executor = Executor()
    x = torch.randn(2, 3)
    got = executor.call(f, x)
    torch.testing.assert_close(got, f(x))
    assert type(got[3]) is type(f(x)[3])
    assert not executor.captures[0].breaks


def test_views_and_writes():
    def f(x):
        y = x.view(-1)
        y[0] = 5
        x += 1
        x.mul_(2)
        y[1:3].add_(x.view(-1)[1:3])
        return y, x

    executor = Executor()
    mine, theirs = torch.arange(6.0).view(2, 3), torch.arange(6.0).view(2, 3)
    got = executor.call(f, mine)
    torch.testing.assert_close(got, f(theirs))
    torch.testing.assert_close(mine, theirs)
    assert got[1] is mine
    assert not executor.captures[0].breaks


def test_out_argument():
    def f(x, out):
        torch.add(x, 1, out=out)
        return out

    executor = Executor()
    x, out = torch.ones(3), torch.zeros(3)
    assert executor.call(f, x, out) is out
    torch.testing.assert_close(out, x + 1)


def test_factories_and_random_numbers():
    def f(x):
        return (
            x + torch.zeros(3) + torch.arange(3) + torch.rand(3) + torch.tensor([1.0, 2.0, 3.0]) + torch.full((3,), 2)
        )

    executor = Executor()
    x = torch.ones(3)
    torch.manual_seed(0)
    first = executor.call(f, x)
    torch.manual_seed(0)
    torch.testing.assert_close(first, f(x))


def test_dtypes_devices_and_sizes_are_known():
    def f(x):
        y = torch.empty(x.shape[0], 2, dtype=x.dtype, device=x.device).fill_(torch.finfo(x.dtype).eps)
        size = torch.Size([2, 3])
        return y.to(torch.float64), size.numel(), x.device.type, str(x.dtype), x.dtype == torch.float32, x.shape

    executor = Executor()
    x = torch.randn(2, 3)
    assert repr(executor.call(f, x)) == repr(f(x))
    assert not executor.captures[0].breaks


def test_iteration_and_unpacking():
    def f(x):
        a, b = x
        return [row * 2 for row in x], a - b, [r for r in zip(x, range(2))]  # noqa: C416

    executor = Executor()
    x = torch.randn(2, 3)
    torch.testing.assert_close(executor.call(f, x), f(x))
    assert not executor.captures[0].breaks


def test_containers_in_and_out():
    def f(batch, scale=(1, 2), **kw):
        out = {"a": batch["x"] * scale[1], "b": [batch["y"][0] + kw["z"], None, 3]}
        batch["new"] = out["a"]
        return out

    executor = Executor()
    x, y, z = torch.randn(3), torch.randn(3), torch.randn(3)
    mine, theirs = {"x": x, "y": [y]}, {"x": x, "y": [y]}
    got, want = executor.call(f, mine, z=z), f(theirs, z=z)
    torch.testing.assert_close(got, want)
    assert mine["new"] is got["a"]
    assert not executor.captures[0].breaks


def test_results_that_are_one_object_stay_one():
    def f(x):
        y = x + 1
        return y, [y], x

    x = torch.ones(2)
    a, (b,), c = Executor().call(f, x)
    assert a is b and c is x


@pytest.mark.parametrize("training", [False, True])
def test_dropout_and_batch_norm(training):
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).train(training)
    import copy

    other = copy.deepcopy(model)
    x = torch.randn(3, 4)
    executor = Executor()
    torch.manual_seed(0)
    got = executor.call(model, x)
    torch.manual_seed(0)
    torch.testing.assert_close(got, other(x))
    torch.testing.assert_close(model[1].running_mean, other[1].running_mean)
    assert model[1].num_batches_tracked == other[1].num_batches_tracked
    assert not executor.captures[0].breaks


def test_tensor_facts_are_guarded():
    found = intarsia_tensorcapture.capture(lambda x: x + 1, (torch.randn(2, 3),))
    (guard,) = [g for g in found.guards if g.kind is GuardKind.TENSOR]
    assert (guard.facts.shape, guard.facts.strides, guard.facts.dtype) == ((2, 3), (3, 1), torch.float32)
    assert guard.facts.type_name == "torch.Tensor" and guard.facts.device == ("cpu", None)
    ambient = {g.kind for g in found.guards if g.source is None}
    assert ambient == {
        GuardKind.GRAD_MODE, GuardKind.INFERENCE_MODE, GuardKind.AUTOCAST, GuardKind.DEFAULT_DTYPE,
        GuardKind.DETERMINISTIC, GuardKind.TORCH_MODES, GuardKind.CLASS,
    }  # fmt: skip


def test_attribute_tensors_have_their_place():
    class Holder:
        def __init__(self):
            self.inner = {"t": torch.ones(2)}

    def f(h):
        return h.inner["t"] + 1

    found = intarsia_tensorcapture.capture(f, (Holder(),))
    (spec,) = found.signature.inputs
    assert str(spec.source) == "h.inner['t']" and isinstance(spec.source.base, AttributeSource)


def test_a_user_may_rewrite_the_graph():
    def f(x):
        return torch.relu(x) + 1

    found = intarsia_tensorcapture.capture(f, (torch.randn(3),))
    for node in found.graph_module.graph.nodes:
        if node.target is torch.relu:
            node.target = F.gelu
    found.graph_module.recompile()
    x = torch.randn(3)
    torch.testing.assert_close(found.graph_module(x)[0], F.gelu(x) + 1)


def test_the_replacement_calls_the_compiled_function_by_name():
    import dis

    found = intarsia_tensorcapture.capture(lambda x: x + 1, (torch.randn(3),), number=7)
    code = intarsia_pyeval.link(found.code, {"__compiled_fn_7": found.graph_module})
    assert "LOAD_FAST                1 (__compiled_fn_7)" in dis.Bytecode(code).dis()
