"""`compile` end to end on small functions: backends, counters, the module wrapper."""

import copy
import inspect
import io
import pickle

import pytest
import torch

import intarsia
import intarsia_scheduler
from intarsia_fuser import FusionPlan, NoFusion, Replay
from intarsia_ir.errors import IntarsiaError
from intarsia_loops import tiles
from intarsia_loops.level_text import parse_value
from intarsia_lowering.writing import unary

RAISE = {"on_error": "raise"}


@pytest.fixture(autouse=True)
def _fresh():
    intarsia.reset()


def f(x, y):
    return torch.softmax(x * 2 + torch.sin(y), dim=-1)


def arguments():
    return torch.randn(6, 20), torch.randn(6, 20)


@pytest.mark.parametrize("backend", ["auto", "cpp", "eager", "aten", "loops", "kernels"])
def test_every_rung_of_the_ladder_gives_the_same_values(backend):
    x, y = arguments()
    torch.testing.assert_close(intarsia.compile(f, backend=backend, options=RAISE)(x, y), f(x, y))
    stats = intarsia.stats()
    assert (stats.frames_compiled, stats.graphs, stats.fallbacks) == (1, 1, 0)
    assert stats.kernels_generated == (1 if backend in ("auto", "cpp") else 0)


@pytest.mark.parametrize("backend", ["auto", "eager", "aten", "loops", "kernels"])
def test_every_rung_of_the_ladder_records_no_gradient_where_the_program_does_not(backend):
    weight = torch.ones(3, requires_grad=True)

    def f(x):
        with torch.no_grad():
            return x * weight

    found = intarsia.compile(f, backend=backend, options=RAISE)(torch.ones(2, 3))
    assert found.grad_fn is None and not found.requires_grad


def test_a_second_call_compiles_nothing():
    x, y = arguments()
    fast = intarsia.compile(f, options=RAISE)
    fast(x, y)
    before = intarsia.stats()
    fast(x + 1, y)
    assert intarsia.stats() == before


def test_another_shape_compiles_another_version():
    fast = intarsia.compile(f, options=RAISE)
    for n in (4, 8, 4, 8):
        x, y = torch.randn(3, n), torch.randn(3, n)
        torch.testing.assert_close(fast(x, y), f(x, y))
    stats = intarsia.stats()
    assert (stats.frames_compiled, stats.recompiles) == (2, 1)


def test_a_registered_backend_is_known_by_name():
    intarsia.register_backend("mine", lambda gm, inputs: gm.forward)
    assert "mine" in intarsia.list_backends()
    x, y = arguments()
    torch.testing.assert_close(intarsia.compile(f, backend="mine", options=RAISE)(x, y), f(x, y))


def test_as_a_decorator_with_keywords():
    @intarsia.compile(fullgraph=True, options=RAISE)
    def g(x):
        return torch.relu(x) + 1

    x = torch.randn(5)
    torch.testing.assert_close(g(x), torch.relu(x) + 1)
    assert g.__name__ == "g"


class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4))
        self.calls = 0

    def forward(self, x):
        return x * self.weight


def test_dir_lists_the_names_of_the_module():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    model.register_buffer("mean", torch.zeros(2))
    assert set(dir(intarsia.compile(model))) == {*dir(model), "_orig_mod"}


def test_a_compiled_module_is_still_the_module():
    module = Scale()
    fast = intarsia.compile(module, options=RAISE)
    x = torch.randn(3, 4)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), module(x))
    assert isinstance(fast, torch.nn.Module) and fast._orig_mod is module
    assert list(fast.state_dict()) == ["_orig_mod.weight"] and fast.weight is module.weight
    fast.calls = 7
    assert module.calls == 7
    assert not fast.eval().training and not module.training


def test_a_compiled_container_is_still_a_container():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    fast = intarsia.compile(model)
    assert fast[1] is model[1] and len(fast) == 2 and list(fast) == list(model)
    single = intarsia.compile(torch.nn.ReLU())
    assert bool(single)
    with pytest.raises(TypeError):
        single[0]


def test_copies_and_pickles_compile_again():
    fast = intarsia.compile(Scale(), options=RAISE)
    x = torch.randn(3, 4)
    again = copy.deepcopy(fast)
    buffer = io.BytesIO()
    torch.save(fast, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)
    with torch.no_grad():
        for other in (again, loaded):
            torch.testing.assert_close(other(x), fast(x))
            assert other.weight is not fast.weight


def test_dumps_hold_every_stage(tmp_path):
    x, y = arguments()
    intarsia.compile(f, options={**RAISE, "dump_dir": str(tmp_path), "verify_each": True})(x, y)
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith("graph") and folder.name.endswith("_f")
    dumped = sorted(p.name for p in folder.iterdir())
    assert dumped[0] == "00_select_masked_writes.ir"

    def dump(name):
        (path,) = folder.glob(f"*_{name}")
        return path.read_text()

    plan = intarsia_scheduler.SchedulePlan.from_json(dump("schedule.plan.json"))
    kernels = parse_value(dump("fuse.ir"))
    again = intarsia_scheduler.apply(kernels.graph_module, plan)
    assert tiles.print_ir(again) == dump("schedule.tiles")
    emitted = parse_value(dump("emit.ir"))
    assert emitted.source.text == dump("emit.cpp")
    assert not any("build" in name for name in dumped)  # the graph is that of the kernels
    assert "dialect: loops" in dump("lower.ir")
    assert FusionPlan.from_json(dump("fuse.plan.json")).after.kernels == 1


def test_plans_come_back_and_are_policies():
    x, y = arguments()
    fast = intarsia.compile(f, options=RAISE)
    expected = fast(x, y)
    (plan,) = intarsia.fusion_plans(fast)
    (graph,) = intarsia.explain(f, options=RAISE)(x, y).graphs
    assert graph.plans == (plan,) and plan.policy.startswith("greedy")
    none = intarsia.explain(f, options=RAISE, pipeline=intarsia.default_pipeline(policy=NoFusion()))(x, y)
    replayed = intarsia.explain(f, options=RAISE, pipeline=intarsia.default_pipeline(policy=plan))(x, y)
    assert len(none.graphs[0].kernels) > len(replayed.graphs[0].kernels) == 1
    assert replayed.graphs[0].plans == (plan,)
    torch.testing.assert_close(fast(x, y), expected)
    intarsia.reset()
    assert not intarsia.fusion_plans(fast)


@pytest.mark.parametrize("compiled", [intarsia.compile, intarsia.compile_module_])
def test_plans_of_modules(compiled):
    class Net(torch.nn.Module):
        def forward(self, x):
            return torch.softmax(x * 2, -1)

    module = Net()
    fast = compiled(module, options=RAISE) or module
    assert not intarsia.fusion_plans(fast)
    fast(torch.randn(3, 4))
    (plan,) = intarsia.fusion_plans(fast)
    assert plan.after.kernels == 1


def test_a_lowering_that_makes_no_program_is_refused_by_the_name_of_what_is_wrong():
    lowerings = {torch.ops.aten.tanh.default: lambda b, x: b.pointwise(lambda v: unary("sigmoid", v), x)}
    fast = intarsia.compile(lambda x: torch.tanh(x) + 1, options=RAISE, lowerings=lowerings)
    with pytest.raises(IntarsiaError, match="no scalar op is called 'sigmoid'"):
        fast(torch.randn(3))


def test_training_has_a_plan_for_each_half():
    x = torch.randn(8, 16, requires_grad=True)
    fast = intarsia.compile(lambda x: torch.softmax(x * 2, -1), options=RAISE)
    fast(x)
    plans = intarsia.fusion_plans(fast)
    assert len(plans) == 2
    again = intarsia.compile(
        lambda x: torch.softmax(x * 2, -1), options=RAISE, pipeline=intarsia.default_pipeline(policy=Replay(plans))
    )
    again(x)
    assert [p.decisions for p in intarsia.fusion_plans(again)] == [p.decisions for p in plans]


def test_explain_tells_kernels_breaks_and_guards():
    x, y = arguments()
    explanation = intarsia.explain(f, options=RAISE)(x, y)
    (graph,) = explanation.graphs
    (kernel,) = graph.kernels
    # float32: both inputs are read once, the result is written once, everything between stays in the kernel
    assert (kernel.bytes_read, kernel.bytes_written) == (2 * 6 * 20 * 4, 6 * 20 * 4)
    assert kernel.bytes_saved > 0 and graph.n_fused >= 3
    assert not explanation.breaks and explanation.guards
    assert "1 graph(s), 0 break(s)" in str(explanation)


def test_disable_runs_natively_inside():
    seen = []

    @intarsia.disable
    def untouched(x):
        seen.append(type(x))
        return x + 1

    def g(x):
        return untouched(x) * 2

    x = torch.randn(3)
    torch.testing.assert_close(intarsia.compile(g, options=RAISE)(x), (x + 1) * 2)
    assert seen == [torch.Tensor]


def test_negative_ints_that_change_are_compiled_once_more():
    compiled = intarsia.compile(
        lambda x, n: (x * n + (n * 2 - 1), n), options={"on_error": "raise", "recompile_limit": 2}
    )
    x = torch.tensor([1.5, -2.0])
    for n in (-3, -4, -1, -20, -(1 << 20)):
        result, same = compiled(x, n)
        torch.testing.assert_close(result, x * n + (n * 2 - 1), rtol=0, atol=0)
        assert type(same) is int and same == n


class Scaled(torch.nn.Linear):
    def forward(self, x, *, scale: float = 2.0) -> torch.Tensor:
        """Scale what the layer gives."""
        return super().forward(x) * scale


def test_forward_has_the_signature_of_the_original():
    module = Scaled(3, 3)
    fast, x = intarsia.compile(module, options=RAISE), torch.ones(2, 3)
    for one in (fast, copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        assert inspect.signature(one.forward) == inspect.signature(module.forward)
        assert one.forward.__doc__ == "Scale what the layer gives." and one.forward == one.forward
        torch.testing.assert_close(one.forward(x, scale=3.0), module(x, scale=3.0))
    assert intarsia.stats().fallbacks == 0 and intarsia.stats().graphs > 0


def test_a_forward_that_is_put_in_place_of_the_compiled_one_is_called():
    module = Scaled(3, 3)
    fast, x = intarsia.compile(module, options=RAISE), torch.ones(2, 3)
    before = fast.forward
    fast.forward = lambda x: before(x) + 1  # as libraries patch modules
    torch.testing.assert_close(fast(x), module(x) + 1)
    del fast.forward
    torch.testing.assert_close(fast(x), module(x))
    assert intarsia.stats().graphs == 1


def test_compiled_functions_are_copied_and_pickled_as_functions_are():
    fast = intarsia.compile(f, options=RAISE)
    assert copy.copy(fast) is fast and copy.deepcopy(fast) is fast
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    with pytest.raises(pickle.PicklingError, match="not the same object"):
        pickle.dumps(fast)


@intarsia.compile
def decorated(x):
    return x + 1
