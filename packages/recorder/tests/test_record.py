"""One idea a test: what `record` does with each thing that a program may hold."""

from itertools import compress

import pytest
import torch
import torch.fx as fx
import torch.nn.functional as F

from intarsia_ir import aten, meta
from intarsia_ir.errors import InternalError, InvalidArgumentError, UnsupportedError
from intarsia_ir.records import Constant, Fresh, InputItself, InputSpec, Origin, Role, Signature
from intarsia_recorder import EagerMode, record
from intarsia_shapes import ShapeEnv, fake_mode, fakeify


def targets(recorded):
    return [str(n.target) for n in recorded.graph_module.graph.nodes if n.op == "call_function"]


def check(program, *inputs):
    """Record `program`, verify the graph down to its values, and compare a run of it with eager."""
    recorded = record(program, inputs)
    aten.verify(recorded.graph_module, values=True)
    torch.manual_seed(0)
    expected = torch.utils._pytree.tree_leaves(program(*[x.clone() for x in inputs]))
    torch.manual_seed(0)
    results = aten.interpret(recorded.graph_module, *[x.clone() for x in inputs])
    for spec, value in zip(recorded.signature.outputs, expected, strict=True):
        if isinstance(spec, Fresh):
            torch.testing.assert_close(results[spec.result], value)
            # strides of dimensions of one element mean nothing, and fake tensors choose them differently
            means = [size != 1 for size in value.shape]
            assert list(compress(results[spec.result].stride(), means)) == list(compress(value.stride(), means))
            assert list(compress(spec.strides, means)) == list(compress(value.stride(), means))
    return recorded


# ---- programs ----------------------------------------------------------------------------------------------------


def test_composites_come_apart_and_writes_stay_in_order():
    recorded = check(lambda x, w: F.linear(x, w).relu_().add_(1), torch.randn(3, 4), torch.randn(5, 4))
    assert targets(recorded) == ["aten.t.default", "aten.mm.default", "aten.relu_.default", "aten.add_.Tensor"]


def test_ops_that_only_python_takes_apart_stay_whole_where_sizes_are_static():
    recorded = check(lambda x: F.interpolate(x, scale_factor=2.0), torch.randn(1, 2, 3, 3))
    assert targets(recorded) == ["aten.upsample_nearest2d.default"]
    with torch.inference_mode():  # where composites reach the recorder whole
        recorded = check(lambda x, w: F.linear(x, w), torch.randn(2, 3, 4), torch.randn(5, 4))
    assert "aten.linear.default" not in targets(recorded)


def test_real_inputs_are_not_written():
    x = torch.zeros(3)
    record(lambda x: x.add_(1), (x,))
    assert x.tolist() == [0, 0, 0]


def test_inputs_and_outputs_may_be_nested():
    recorded = record(lambda pair, k: {"sum": pair[0] + pair[1], "k": k}, ([torch.ones(2), torch.ones(2)], 3))
    assert [i.name for i in recorded.signature.inputs] == ["arg0", "arg1", "arg2"]
    assert recorded.signature.outputs == (Fresh(0, (1,)), Constant(3))
    rebuilt = torch.utils._pytree.tree_unflatten([0, 1], recorded.signature.output_tree)
    assert rebuilt == {"sum": 0, "k": 1}


def test_a_tensor_that_the_program_closes_over_becomes_a_buffer():
    weight = torch.randn(3)
    recorded = check(lambda x: x * weight + weight, torch.randn(3))
    (node,) = recorded.graph_module.graph.find_nodes(op="get_attr")
    assert getattr(recorded.graph_module, str(node.target)) is weight


def test_a_literal_is_a_fresh_tensor_on_every_run():
    recorded = check(lambda x: (torch.tensor([1.0, 2.0]), x + 1), torch.zeros(2))
    assert isinstance(recorded.signature.outputs[0], Fresh)
    first, second = (aten.interpret(recorded.graph_module, torch.zeros(2))[0] for _ in range(2))
    first.add_(1)
    assert second.tolist() == [1, 2]


def test_a_literal_of_one_element_knows_its_value():
    recorded = check(lambda x: x * 2 if torch.tensor(3.0).item() > 2 else x, torch.ones(2))
    assert targets(recorded) == ["aten.lift_fresh_copy.default", "aten.mul.Tensor"]


def test_random_ops_stay_in_program_order_and_draw_what_eager_draws():
    recorded = check(lambda x: (torch.rand(3) + x, F.dropout(x, 0.5), torch.randn(3)), torch.ones(3))
    nodes = [n for n in recorded.graph_module.graph.nodes if aten.node_effects(n).random]
    assert [str(n.target) for n in nodes] == [
        "aten.rand.default",
        "aten.bernoulli_.float",
        "aten.randn.default",
    ]


def test_results_of_several_tensors_get_items_in_order():
    recorded = check(lambda x: [p + 1 for p in reversed(x.unbind(0))], torch.randn(3, 2))
    items = [n.args[1] for n in recorded.graph_module.graph.nodes if "getitem" in n.name]
    assert sorted(items) == [0, 1, 2]


def test_values_keep_the_metadata_of_their_time():
    def program(x):
        y = x.split(1)[0]
        z = y.sin()
        y.squeeze_()
        return y * 1, z

    recorded = check(program, torch.randn(3, 2))
    shapes = [tuple(meta.value(n).shape) for n in recorded.graph_module.graph.nodes if "getitem" in n.name]
    assert shapes == [(1, 2)]


def test_decompositions_run_below_autograd_and_may_decline():
    def relu(x):
        return torch.clamp_min(x, 0) if x.dim() == 1 else NotImplemented

    table = {torch.ops.aten.relu.default: relu}
    assert targets(record(torch.relu, (torch.randn(3),), decompositions=table)) == ["aten.clamp_min.default"]
    assert targets(record(torch.relu, (torch.randn(3, 1),), decompositions=table)) == ["aten.relu.default"]


def test_fuel_counts_decompositions_in_program_order():
    table = {
        torch.ops.aten.relu.default: lambda x: torch.clamp_min(x, 0) if x.dim() == 1 else NotImplemented,
        torch.ops.aten.silu.default: lambda x: x * torch.sigmoid(x),
    }

    def program(x, y):
        return torch.relu(x), F.silu(torch.relu(y))

    inputs = (torch.randn(3), torch.randn(3, 1))
    found = [targets(record(program, inputs, decompositions=table, fuel=n)) for n in range(4)]
    names = [[name.split(".")[1] for name in one] for one in found]
    # one that declines costs nothing
    assert names[0] == ["relu", "relu", "silu"]
    assert names[1] == ["clamp_min", "relu", "silu"]
    assert names[2] == names[3] == ["clamp_min", "relu", "sigmoid", "mul"]


# ---- FX(torch) -----------------------------------------------------------------------------------------------------


def torch_graph():
    """x: f32[3, 4], w: f32[4, 2]; with user lines on two nodes."""
    graph = fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    product = graph.call_function(torch.matmul, (x, w))
    meta.set_origins(product, [Origin("model.py", 7, "Model.forward")])
    relu = graph.call_method("relu_", (product,))
    meta.set_origins(relu, [Origin("model.py", 8, "Model.forward")])
    softmax = graph.call_function(F.softmax, (relu,), {"dim": -1})
    graph.output((softmax, w))
    return fx.GraphModule(torch.nn.Module(), graph)


def test_ops_carry_the_lines_of_their_torch_level_node():
    recorded = record(torch_graph(), (torch.randn(3, 4), torch.randn(4, 2)))
    found = [(str(n.target), *meta.origins(n)) for n in recorded.graph_module.graph.nodes if n.op == "call_function"]
    assert found[:2] == [
        ("aten.mm.default", Origin("model.py", 7, "Model.forward", "matmul")),
        ("aten.relu_.default", Origin("model.py", 8, "Model.forward", "relu_")),
    ]
    # a node without a line: its place in the graph
    assert found[2][1:] == (Origin("<graph>", 5, "forward", "softmax"),)
    assert recorded.signature.outputs == (Fresh(0, (2, 1)), InputItself(1))


def test_names_roles_and_sources_come_from_the_signature():
    given = Signature((InputSpec("input"), InputSpec("weight", Role.PARAMETER)))
    weight = torch.nn.Parameter(torch.randn(4, 2))
    recorded = record(torch_graph(), (torch.randn(3, 4), weight), signature=given)
    assert recorded.signature.inputs == (InputSpec("x"), InputSpec("w", Role.PARAMETER, requires_grad=True))


def test_regions_are_executed_and_leave_nothing_behind():
    graph = fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    graph.call_function(torch._C._set_grad_enabled, (False,))
    half = graph.call_function(torch.amp.autocast_mode._enter_autocast, ("cpu", torch.bfloat16, True, None))
    y = graph.call_function(torch.matmul, (x, w))
    graph.call_function(torch.amp.autocast_mode._exit_autocast, (half,))
    graph.output((graph.call_function(torch.matmul, (y, y)),))
    recorded = record(fx.GraphModule(torch.nn.Module(), graph), (torch.randn(3, 3), torch.randn(3, 3)))
    assert targets(recorded) == ["aten._to_copy.default", "aten._to_copy.default", "aten.mm.default", "aten.mm.default"]
    assert recorded.signature.exit_grad_mode is False
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


def test_an_op_that_fails_inside_a_region_leaves_the_caller_outside_of_it(caplog):
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch.amp.autocast_mode._enter_autocast, ("cpu", torch.bfloat16, True, None))
    graph.call_function(torch._C._set_grad_enabled, (False,))
    graph.output((graph.call_function(torch.matmul, (x, x)),))
    with pytest.raises(RuntimeError, match="reduction dim"):
        record(fx.GraphModule(torch.nn.Module(), graph), (torch.randn(3, 4),))
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    assert not caplog.records, "the error is raised, not printed"


def test_autocast_around_the_caller_applies():
    def program(x, w):
        return x @ w

    with torch.autocast("cpu", torch.bfloat16):
        recorded = record(program, (torch.randn(2, 2), torch.nn.Parameter(torch.randn(2, 2))))
    assert targets(recorded).count("aten._to_copy.default") == 2


def test_modules_are_called_and_their_parameters_become_buffers():
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    gm = fx.symbolic_trace(module)
    recorded = record(gm, (torch.randn(2, 4),))
    assert len(recorded.graph_module.graph.find_nodes(op="get_attr")) == 2
    x = torch.randn(2, 4)
    torch.testing.assert_close(aten.interpret(recorded.graph_module, x)[0], module(x))


# ---- outputs ---------------------------------------------------------------------------------------------------------


def test_what_each_output_is():
    buffer = torch.zeros(2)

    def program(x):
        y = x + 1
        return x, y, y, None, 2.5, buffer, x.add_(1)

    recorded = record(program, (torch.zeros(2),))
    outputs = recorded.signature.outputs
    assert outputs[:5] == (InputItself(0), Fresh(0, (1,)), Fresh(0, (1,)), Constant(None), Constant(2.5))
    assert isinstance(outputs[5], Constant) and outputs[5].value is buffer
    assert outputs[6] == InputItself(0), "an in-place op returns the object that it wrote"


def test_whether_an_output_requires_grad():
    weight = torch.nn.Parameter(torch.randn(2))
    with torch.no_grad():
        assert record(lambda w: w * 2, (weight,)).signature.outputs == (Fresh(0, (1,), False),)
    assert record(lambda w: w * 2, (weight,)).signature.outputs == (Fresh(0, (1,), True),)


# ---- refused ---------------------------------------------------------------------------------------------------------


def test_a_question_about_data_is_refused_with_the_user_line():
    def program(x):
        if x.sum() > 0:
            return x
        return -x

    with pytest.raises(UnsupportedError) as caught:
        record(program, (torch.ones(3),))
    assert caught.value.code == "recorder.data_dependent"
    assert caught.value.where[-1].line == program.__code__.co_firstlineno + 1


def test_generators_are_refused():
    generator = torch.Generator()
    with pytest.raises(UnsupportedError, match=r"recorder\.generator"):
        record(lambda x: x + torch.rand(3, generator=generator), (torch.ones(3),))


def test_a_tensor_left_over_from_another_recording_is_a_bug_of_the_caller():
    kept = []
    record(lambda x: kept.append(x + 1), (torch.ones(3),))
    with pytest.raises((InternalError, AssertionError)):
        record(lambda x: x + kept[0], (torch.ones(3),), fake_mode=kept[0].fake_mode)


@pytest.mark.parametrize(
    ("inputs", "signature"),
    [((torch.ones(3, 4),), None), ((torch.ones(3, 4), torch.ones(4, 2)), Signature((InputSpec("x"),)))],
)
def test_inputs_that_do_not_fit_are_refused(inputs, signature):
    with pytest.raises(InvalidArgumentError, match=r"recorder\.inputs"):
        record(torch_graph(), inputs, signature=signature)


def test_an_error_of_the_program_reaches_the_caller_as_it_is():
    def program(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        record(program, (torch.ones(3),))


# ---- symbolic sizes --------------------------------------------------------------------------------------------------


def test_symbolic_sizes_are_written_on_demand_and_facts_come_with_the_result():
    from intarsia_shapes import ShapeEnv, fake_mode, fakeify

    mode = fake_mode(ShapeEnv())
    x = fakeify(mode, torch.empty(6, 5), "x", dynamic=(0, 1))
    recorded = record(lambda x: x.reshape(-1, 2) * (x.shape[0] + x.shape[1]), (x,))
    assert "(((s0 * s1) % 2) == 0)" in [fact.relation for fact in recorded.facts.facts]
    real = torch.randn(8, 3)
    torch.testing.assert_close(aten.interpret(recorded.graph_module, real)[0], real.reshape(-1, 2) * 11)


def test_sizes_that_depend_on_data_are_checked_by_the_program():
    from intarsia_shapes import ShapeEnv, fake_mode, fakeify

    def program(n, x):
        size = n.item()
        torch._check(size >= 0)
        torch._check(size <= x.shape[0])
        return x.narrow(0, 0, size) * 2

    mode = fake_mode(ShapeEnv())
    inputs = mode.from_tensor(torch.tensor(4)), fakeify(mode, torch.empty(9, 3), "x", dynamic=(0,))
    recorded = record(program, inputs)
    x = torch.randn(7, 3)
    torch.testing.assert_close(aten.interpret(recorded.graph_module, torch.tensor(5), x)[0], x[:5] * 2)
    with pytest.raises(RuntimeError, match="hold"):
        aten.interpret(recorded.graph_module, torch.tensor(8), x)


def test_tensors_like_a_dense_one_have_its_strides_in_dimensions_of_size_1():
    x = torch.zeros(1, 6)[:, 1:4]
    recorded = record(lambda x: (torch.zeros_like(x), torch.full_like(x, 2.0)), (x,))
    (results,) = (n.args[0] for n in recorded.graph_module.graph.nodes if n.op == "output")
    assert [meta.value(n).stride() for n in results] == [torch.zeros_like(x).stride()] * 2 == [(6, 1)] * 2


def test_a_symbolic_tensor_is_dense_where_that_is_known_for_all_sizes():
    from intarsia_recorder.iteration import is_known_dense
    from intarsia_shapes import ShapeEnv, fake_mode, fakeify

    mode = fake_mode(ShapeEnv())

    def known(x):
        return is_known_dense(fakeify(mode, x, "x", dynamic=(0,)))

    dense = torch.empty(1, 5, 3).permute(1, 0, 2)
    assert known(dense) and known(torch.empty_strided((5, 1, 3), (1, 77, 5)))
    assert not known(dense[::2]) and not known(torch.empty(5, 2, 3)[:, :1])


def test_every_question_about_metadata_is_answered_with_static_and_symbolic_sizes():
    from intarsia_recorder.recorder import _QUERIES, _kind_of

    for is_symbolic in (False, True):
        assert all(_kind_of(op, {}, is_symbolic).is_query for op in _QUERIES)


def test_a_dropout_of_nothing_is_its_operand_with_static_and_symbolic_sizes():
    from intarsia_shapes import ShapeEnv, fake_mode, fakeify

    def program(x):
        F.dropout(x, 0.5, training=False).add_(1)
        return x * 2

    mode = fake_mode(ShapeEnv())
    for x in (torch.ones(5, 7), fakeify(mode, torch.empty(5, 7), "x", dynamic=(0, 1))):
        assert targets(record(program, (x,))) == ["aten.add_.Tensor", "aten.mul.Tensor"]


KEPT = torch.arange(30.0).reshape(1, 2, 3, 5)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_resampling_stays_whole_with_symbolic_sizes(mode):
    from intarsia_shapes import ShapeEnv, fake_mode, fakeify

    def program(x):
        return F.interpolate(x, scale_factor=1.3, mode=mode)

    for dynamic in ((), (2, 3)):
        fake = fakeify(fake_mode(ShapeEnv()), torch.empty_like(KEPT), "x", dynamic=dynamic)
        recorded = record(program, (fake,))
        (target,) = [t for t in targets(recorded) if "upsample" in t]
        assert target.endswith("2d.default")
        torch.testing.assert_close(aten.interpret(recorded.graph_module, KEPT)[-1], program(KEPT), rtol=0, atol=0)


def test_an_empty_side_is_refused_by_resampling_with_static_and_symbolic_sizes():
    from intarsia_shapes import ShapeEnv, fake_mode, fakeify

    for mode, side in (("nearest", KEPT), ("bilinear", KEPT), ("linear", KEPT[0])):
        for dynamic in ((), (side.dim() - 1,)):
            fake = fakeify(fake_mode(ShapeEnv(), kind=EagerMode), torch.empty_like(side), "x", dynamic=dynamic)
            with pytest.raises(RuntimeError, match=r"without elements|greater than 0"):
                record(lambda x, mode=mode: F.interpolate(x, scale_factor=0.1, mode=mode), (fake,))


@pytest.mark.parametrize("function", [F.softshrink, F.hardshrink, torch.Tensor.hardshrink, F.multilabel_margin_loss])
def test_what_has_a_python_form_of_its_own_stays_whole_with_symbolic_sizes(function):
    from intarsia_shapes import ShapeEnv, fake_mode, fakeify

    mode = fake_mode(ShapeEnv())
    x = fakeify(mode, torch.empty(5, 7), "x", dynamic=(0, 1)).requires_grad_()
    classes = fakeify(mode, torch.zeros(5, 7, dtype=torch.int64), "y", dynamic=(0, 1))
    made = targets(record(function, (x, classes) if "margin" in function.__name__ else (x,)))
    assert len(made) == 1 or made[0] == "aten.multilabel_margin_loss_forward.default"


@pytest.mark.parametrize("function", [lambda x: x.add_(1), lambda x: x.data.add_(1), lambda x: x + 1])
@pytest.mark.parametrize("x", [torch.zeros(2, 3), torch.zeros(4, 2, 3)[1], torch.zeros(3, 2).t()])
def test_writes_are_counted_from_what_a_tensor_begins_with(function, x):
    """A fake tensor of open sizes that stands for a view was written when it was made."""
    fake = fakeify(fake_mode(ShapeEnv()), x, "x", dynamic=(0,))
    before = x._version
    recorded = record(function, (fake,))
    function(x)
    assert recorded.signature.inputs[0].n_writes == x._version - before
