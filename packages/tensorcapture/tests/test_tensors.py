"""Tensor programs: what is captured, what is guarded, and that the replacement code does what the function does."""

import linecache

import pytest
import torch
from tensor_executor import Executor
from torch import nn

from intarsia_ir import meta
from intarsia_ir import torch as torch_dialect
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.records import ArgumentSource, AttributeSource, GuardKind, Role
from intarsia_tensorcapture import capture


def check(fn, *args, breaks=0, graphs=1, **kwargs):
    """Run `fn` by its captures and compare with the function itself; returns the captures."""
    executor = Executor()
    with torch.no_grad():
        torch.manual_seed(0)
        actual = executor.call(fn, *args, **kwargs)
        torch.manual_seed(0)
        expected = fn(*args, **kwargs)
    torch.testing.assert_close(actual, expected)
    captured = [c for c in executor.captures if c.graph_module is not None]
    assert len(captured) == graphs
    assert sum(len(c.breaks) for c in executor.captures) == breaks
    for c in captured:
        torch_dialect.verify(c.graph_module)
    return executor.captures


def targets(captured):
    nodes = captured.graph_module.graph.nodes
    return [getattr(n.target, "__name__", n.target) for n in nodes if n.op.startswith("call")]


X = torch.arange(12.0).reshape(3, 4) - 5


def test_nodes_know_the_users_line():
    def f(x):
        y = torch.sin(x)
        return y + 1

    (captured,) = check(f, X)
    where = [meta.origins(n)[-1] for n in captured.graph_module.graph.nodes if n.op.startswith("call")]
    first = f.__code__.co_firstlineno
    assert [(o.file, o.line) for o in where] == [(__file__, first + 1), (__file__, first + 2)]


def test_parameters_and_buffers_are_lifted_with_their_sources():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU()).eval()
    captured = capture(model.forward, (X,))
    roles = [i.role for i in captured.signature.inputs]
    assert roles.count(Role.PARAMETER) == 4 and roles.count(Role.BUFFER) == 2 and roles.count(Role.USER) == 1
    weights = [i.source for i in captured.signature.inputs if i.role is Role.PARAMETER]
    assert all(isinstance(s, AttributeSource) or "[" in str(s) for s in weights)


def test_the_same_tensor_is_one_input():
    def f(x, y):
        return x + y

    (captured,) = check(f, X, X)
    assert len(captured.signature.inputs) == 1
    assert GuardKind.ALIASING in {g.kind for g in captured.guards}


def test_tensors_that_were_keys_are_as_many_tensors():
    def f(x, y):
        return x + y, y in {x: 1}, len({x, y}), {(x, 0): 1}.get((y, 0))

    (captured,) = check(f, X, X + 1)
    (guard,) = [g for g in captured.guards if g.kind is GuardKind.DISTINCT]
    assert [str(guard.source), *map(str, guard.others)] == ["x", "y"]
    assert "y in {x: 1}" in linecache.getline(guard.origin.file, guard.origin.line)


def test_a_tensor_that_is_no_key_may_be_any_other():
    def f(x, seen):
        return x + 1, x in seen, seen.get(x, 2)

    (captured,) = check(f, X, {X + 1: 1})
    (guard,) = [g for g in captured.guards if g.kind is GuardKind.ABSENT]
    assert str(guard.key) == "x" and GuardKind.IDENTITY not in {g.kind for g in captured.guards}


def test_branches_on_sizes_types_and_flags_are_taken_and_guarded():
    def f(x, flag=True, mode="a"):
        if x.shape[0] > 2 and flag:
            x = x * 2
        return x + (1 if mode == "a" else 2)

    (captured,) = check(f, X)
    found = [g for g in captured.guards if g.kind is GuardKind.CONSTANT and isinstance(g.source, ArgumentSource)]
    assert {str(g.source): g.value for g in found} == {"flag": True, "mode": "a"}


def test_a_branch_on_a_tensor_breaks_and_both_sides_resume():
    def f(x):
        if x.sum() > 0:
            return x * 2
        return x * 3

    for sign in (1, -1):
        first, *_ = check(f, sign * torch.ones(3), breaks=1, graphs=2)
        (found,) = first.breaks
        assert found.origin.line == f.__code__.co_firstlineno + 1 and found.remedy


def test_fullgraph_raises_with_code_line_and_hint():
    def f(x):
        return x[: x.sum().item()]

    with pytest.raises(UnsupportedError) as caught:
        capture(f, (X,), fullgraph=True)
    assert caught.value.code.startswith("tracer.") and caught.value.hints
    assert caught.value.where[-1].line == f.__code__.co_firstlineno + 1


def test_grad_mode_and_autocast_are_region_nodes():
    def f(x, w):
        with torch.enable_grad():
            x = x * 2
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ w
        return y.float()

    (captured,) = check(f, X, torch.randn(4, 2))
    assert {"_set_grad_enabled", "_enter_autocast", "_exit_autocast"} <= set(targets(captured))


def test_writes_to_arguments_and_views_are_nodes():
    def f(x):
        x = x.clone()
        x[0].add_(1)
        x[:, 1] = 7
        return x.T

    check(f, X)


def test_random_draws_stay_in_order():
    def f(x):
        return torch.rand(3, 4) + torch.nn.functional.dropout(x, 0.5, True) * torch.rand(4)

    check(f, X)


def test_containers_of_tensors_in_and_out():
    def f(pair, table):
        total = sum(t.sum() for t in pair)
        return {"total": total, "more": [table["x"] * 2, *pair]}

    check(f, (X, X + 1), {"x": X})


def test_side_effects_are_replayed_after_the_graph():
    class Box:
        pass

    box, log = Box(), []

    def f(x):
        box.last = x + 1
        log.append(x.shape)
        return box.last * 2

    check(f, X)
    torch.testing.assert_close(box.last, X + 1)
    assert log == [torch.Size([3, 4])] * 2


def test_loops_over_modules_and_hooks_that_are_absent():
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
            self.scale = 0.5

        def forward(self, x, *, skip=()):
            for k, layer in enumerate(self.layers):
                if k not in skip:
                    x = torch.relu(layer(x)) * self.scale
            return x

    (captured,) = check(Deep().forward, X, skip=(1,))
    assert targets(captured).count("linear") == 2


def test_is_compiling_is_true_inside_only():
    def f(x):
        return x + 1 if torch.compiler.is_compiling() else x - 1

    captured = capture(f, (X,))
    assert targets(captured) == ["add"] and not torch.compiler.is_compiling()


def test_dtypes_and_layouts_compare_by_identity():
    def f(x):
        return x + 1 if x.dtype is torch.float32 and x.layout is torch.strided else x - 1

    assert targets(capture(f, (X,))) == ["add"]


def test_masked_reductions_and_windows_are_evaluated():
    def f(x, mask):
        return torch.masked.sum(x, 1, mask=mask) + torch.signal.windows.cosine(1).sum() + torch.masked.amax(x, 1)

    check(f, X, X > 0)


def test_hardswish_asks_for_overrides_of_one_argument():
    assert targets(capture(torch.nn.functional.hardswish, (X,))) == ["hardswish"]


LEGACY = [torch.FloatTensor, torch.LongTensor, torch.BoolTensor, torch.cuda.FloatTensor, torch.sparse.FloatTensor]


@pytest.mark.parametrize("cls", [*LEGACY, torch.Tensor, nn.Parameter, nn.Buffer], ids=str)
def test_instances_of_tensor_classes(cls):
    parameter, buffer = nn.Parameter(torch.ones(2)), nn.Buffer(torch.ones(2))

    def f(x, p, b):
        values = (x, x + 1, x.long(), x > 0, p, p * 2, b, b + 1, x.detach(), 3, None)
        return x + 1, [isinstance(value, cls) for value in values], issubclass(type(p), cls)

    check(f, torch.ones(2), parameter, buffer)


def test_the_mark_of_a_buffer_is_relied_on():
    (captured,) = check(lambda x: (x + 1, isinstance(x, nn.Buffer)), torch.ones(2))
    assert ("_is_buffer", False) in [(g.name, g.expected) for g in captured.guards if g.kind is GuardKind.HAS_ATTRIBUTE]


CLASSES_OF_ELEMENTS = {
    "int": lambda x: x.to(int),
    "float": lambda x: x.to("cpu", float),
    "bool": lambda x: x.to(dtype=bool),
    "complex": lambda x: torch.zeros(2, dtype=complex) + x[0, 0],
    "reduction": lambda x: x.sum(dtype=float),
    "literal": lambda x: torch.tensor([1, 2], dtype=float) + x[0, 0],
    "tensor class": lambda x: x.type(torch.IntTensor),
    "name": lambda x: x.type("torch.DoubleTensor"),
}


@pytest.mark.parametrize("name", CLASSES_OF_ELEMENTS)
def test_classes_stand_for_element_types(name):
    check(CLASSES_OF_ELEMENTS[name], X)


@pytest.mark.parametrize(
    "thing", [len, dict, torch.Generator(), object()], ids=["function", "class", "generator", "object"]
)
def test_what_a_graph_cannot_spell_breaks(thing):
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, thing):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2, None

    x = torch.ones(2, requires_grad=True)
    captured = capture(lambda x: Doubled.apply(x, thing), (x,))
    reason = "is given a generator" if isinstance(thing, torch.Generator) else "is called with"
    assert [b.code for b in captured.breaks] == ["tracer.tensor_op"] and reason in captured.breaks[0].reason


@pytest.mark.parametrize("name", ["is_ipu", "is_hpu", "is_ort", "nothing_of_the_kind"])
def test_an_attribute_that_tensors_may_lack_is_looked_up_as_in_eager(name):
    def f(x):
        return getattr(x, name, "missing"), x + 1

    executor = Executor()
    found, result = executor.call(f, X)
    assert found == f(X)[0]
    torch.testing.assert_close(result, X + 1)


def test_names_of_dimensions_are_asked_of_the_tensor_itself():
    def f(x):
        return getattr(x, "names", "missing"), x + 1

    executor = Executor()
    found, result = executor.call(f, X)
    assert found == f(X)[0]
    torch.testing.assert_close(result, X + 1)
