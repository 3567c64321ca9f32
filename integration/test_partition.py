"""Joint graphs and their halves: values and gradients against eager, saved bytes, each policy."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_autodiff import Budget, MinCut, PartitionPlan, RecomputeAll, SaveAll, joint_graph, partition
from intarsia_autodiff.check import check_halves
from intarsia_functionalizer import functionalize
from intarsia_ir import aten, meta
from intarsia_ir.errors import InvalidArgumentError, UnsupportedError, VerifyError
from intarsia_ir.records import AliasOfInput, AliasOfOutput, Fresh, InputItself

POLICIES = (SaveAll(), MinCut(), RecomputeAll(), Budget(100))

UNARY = {
    "sin": torch.sin,
    "exp": lambda x: torch.exp(x.clamp(max=2.0)),
    "tanh": torch.tanh,
    "relu": torch.relu,
    "gelu": F.gelu,
    "sigmoid": torch.sigmoid,
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(0),
    "norm": lambda x: F.layer_norm(x, (4,)),
    "mean": lambda x: x - x.mean(0, keepdim=True),
    "t": lambda x: x.t(),
    "flip": lambda x: x.flip(0),
    "slice": lambda x: torch.cat([x[:, 1:], x[:, :1]], 1),
    "cumsum": lambda x: x.cumsum(0),
    "detach": lambda x: x.detach() + x,
    "no_grad": lambda x: x * without_grad(x),
    "written": lambda x: x.clone().mul_(2.0).add_(1.0),
    "written view": lambda x: written_view(x),
    "dropout": lambda x: F.dropout(x, 0.25),
    "amax": lambda x: x.amax(1, keepdim=True) + x,
}
BINARY = {
    "add": torch.add,
    "mul": torch.mul,
    "matmul": torch.matmul,
    "where": lambda x, y: torch.where(x > 0, x, y),
    "maximum": torch.maximum,
}


def without_grad(x):
    with torch.no_grad():
        return x.cos()


def written_view(x):
    y = x.clone()
    y[1:3].mul_(3.0)
    return y


@st.composite
def programs(draw, unary=tuple(UNARY), binary=tuple(BINARY)):
    """Return a random differentiable function of some (4, 4) tensors, and which of them need gradients."""
    n_inputs = draw(st.integers(1, 3))
    needs = tuple(draw(st.booleans()) for _ in range(n_inputs - 1)) + (True,)
    steps = []
    for number in range(draw(st.integers(1, 6))):
        pick = st.integers(0, n_inputs + number - 1)
        if draw(st.booleans()):
            steps.append((draw(st.sampled_from(unary)), draw(pick)))
        else:
            steps.append((draw(st.sampled_from(binary)), draw(pick), draw(pick)))
    outputs = draw(st.lists(st.integers(0, n_inputs + len(steps) - 1), min_size=0, max_size=2))

    def program(*inputs):
        values = list(inputs)
        for name, *operands in steps:
            table = UNARY if len(operands) == 1 else BINARY
            values.append(table[name](*[values[n] for n in operands]))
        return (values[-1] * values[n_inputs - 1], *[values[n] for n in outputs])

    return program, needs


def make_inputs(needs, dtype=torch.float32):
    return [torch.randn(4, 4, dtype=dtype).requires_grad_(need) for need in needs]


def value_of(spec, results, inputs):
    """Return an output by its description."""
    match spec:
        case Fresh(result=result):
            return results[result]
        case InputItself(input=position):
            return inputs[position]
        case AliasOfInput(input=position, layout=(shape, strides, offset)):
            base = inputs[position]
            return base.as_strided(shape, strides, base.storage_offset() + offset)
        case AliasOfOutput(base=base, layout=(shape, strides, offset)):
            return results[base].as_strided(shape, strides, results[base].storage_offset() + offset)
    return spec.value


def run_joint(joint, inputs, tangents):
    """Run a joint graph; return outputs, and gradients by input."""
    given, tie = [*inputs, *tangents], joint.signature.joint
    results = aten.interpret(joint.graph_module, *given)
    values = [value_of(spec, results, given) for spec in joint.signature.outputs]
    gradients = {}
    for position, value in zip(tie.gradients, values[tie.n_outputs :], strict=True):
        if value is not None:
            gradients[position] = gradients[position] + value if position in gradients else value
    return values[: tie.n_outputs], gradients


def run_halves(done, inputs, tangents):
    """Run the forward graph, then the backward graphs on what it saved; return outputs, and gradients by input."""
    results = aten.interpret(done.partition.forward.graph_module, *inputs)
    outputs = [value_of(spec, results, inputs) for spec in done.partition.forward.signature.outputs]
    gradients = {}
    tangents = iter(tangents)
    for backward, halves in zip(done.partition.backwards, done.partition.halves, strict=True):
        saved = [inputs[s.position] if s.is_input else results[s.position] for s in halves.saved]
        given = [*saved, *itertools.islice(tangents, len(halves.tangents))]
        second = aten.interpret(backward.graph_module, *given)
        for position, spec in zip(halves.gradients, halves.backward.outputs, strict=True):
            value = value_of(spec, second, given)
            if value is not None:
                gradients[position] = gradients[position] + value if position in gradients else value
    return outputs, gradients


@settings(derandomize=True, deadline=None, max_examples=30)
@given(programs())
def test_halves_equal_the_joint_and_that_equals_eager(case):
    program, needs = case
    torch.manual_seed(3)
    inputs = make_inputs(needs)
    joint = functionalize(joint_graph(program, inputs))
    torch.manual_seed(7)
    expected = program(*inputs)
    tie = joint.signature.joint
    roots = [expected[tangent.position] for tangent in tie.tangents]
    roots = [root if root._base is None or is_root(joint, n) else root._base for n, root in enumerate(roots)]
    tangents = [torch.randn_like(root) for root in roots]
    leaves = [x for x in inputs if x.requires_grad]
    gradients = torch.autograd.grad(roots, leaves, tangents, allow_unused=True)
    plain, plans, recomputed = [x.detach() for x in inputs], {}, {}
    torch.manual_seed(7)
    with torch.no_grad():
        whole = run_joint(joint, plain, tangents)
    same_as_eager(expected, gradients, *whole, needs)
    for policy in POLICIES:
        done = partition(joint, policy)
        torch.manual_seed(7)
        with torch.no_grad():
            halves = run_halves(done, plain, tangents)
        # what is computed again is the same call of the same operands: every bit
        torch.testing.assert_close(halves, whole, rtol=0, atol=0, equal_nan=True)
        again = partition(joint, PartitionPlan.from_json(done.plan.to_json()))
        assert again.plan == done.plan and str(done.plan).startswith(f"{policy}: saves {done.plan.n_bytes} bytes")
        plans[policy], recomputed[policy] = done.plan.n_bytes, done.plan.recomputed
        assert done.plan.n_bytes <= bytes_of_saved(done)
    most, least = plans[SaveAll()], plans[RecomputeAll()]
    # what eager computes in its backward pass alone may be costly: to save it instead takes more
    as_much = MinCut(frozenset(recomputed[SaveAll()]))
    assert partition(joint, as_much).plan.n_bytes <= most
    assert plans[Budget(100)] <= max(100, partition(joint, Budget(0)).plan.n_bytes)
    assert partition(joint, Budget(0)).plan.n_bytes <= min(plans[MinCut()], least)
    assert partition(joint, Budget(most)).plan.n_bytes == most


def same_as_eager(outputs, gradients, ours, our_gradients, needs):
    """Compare outputs and gradients with eager's, in whose place None stands where they are zero."""
    for a, b in zip(outputs, ours, strict=True):
        torch.testing.assert_close(b, a.detach(), rtol=1e-4, atol=1e-4)
    for a, b in zip(gradients, [our_gradients.get(n) for n, need in enumerate(needs) if need], strict=True):
        assert (a is None) <= (b is None or not b.any())
        if a is not None:
            torch.testing.assert_close(b if b is not None else torch.zeros_like(a), a, rtol=1e-4, atol=1e-4)


def bytes_of_saved(done):
    """Return the bytes of all values that go from the forward graph to the backward graph."""
    saved = {}
    for backward, halves in zip(done.partition.backwards, done.partition.halves, strict=True):
        placeholders = [n for n in backward.graph_module.graph.nodes if n.op == "placeholder"]
        saved.update(zip(halves.saved, placeholders, strict=False))
    return sum(meta.value(n).nbytes for n in saved.values())


def is_root(joint, number):
    """Tell whether the tangent belongs to the output itself rather than to what it views."""
    tangent = joint.signature.joint.tangents[number]
    return isinstance(joint.signature.outputs[tangent.position], Fresh)


SMOOTH = tuple(n for n in UNARY if n not in ("relu", "amax", "dropout", "detach", "no_grad", "exp"))


@settings(derandomize=True, deadline=None, max_examples=50)
@given(programs(unary=SMOOTH, binary=("add", "mul", "matmul")))
def test_gradcheck(case):
    program, needs = case
    torch.manual_seed(3)
    inputs = make_inputs(needs, torch.float64)
    done = partition(functionalize(joint_graph(lambda *xs: program(*xs)[:1], inputs)))

    class Node(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *xs):
            ctx.save_for_backward(*xs)
            results = aten.interpret(done.partition.forward.graph_module, *xs)
            return value_of(done.partition.forward.signature.outputs[0], results, xs).clone()

        @staticmethod
        def backward(ctx, tangent):
            _, given = run_halves(done, ctx.saved_tensors, [tangent.contiguous()])
            return tuple(given.get(n) for n in range(len(needs)))

    assert torch.autograd.gradcheck(Node.apply, inputs, atol=1e-5)


def layer(x, w, b):
    return F.dropout(F.gelu(F.linear(x, w, b)), 0.5)


def layer_inputs():
    return [torch.randn(8, 16), torch.randn(32, 16, requires_grad=True), torch.randn(32, requires_grad=True)]


def test_masks_are_saved_as_bytes():
    joint = functionalize(joint_graph(layer, layer_inputs()))
    plan = partition(joint, MinCut()).plan
    # the input, the product, and one byte an element of the mask
    assert plan.n_bytes == 4 * 8 * 16 + 4 * 8 * 32 + 8 * 32


def test_random_numbers_are_drawn_once():
    joint = functionalize(joint_graph(layer, layer_inputs()))
    for policy in POLICIES:
        done = partition(joint, policy)
        assert count_random(done.partition.forward) == 1 and count_random(done.partition.backwards[0]) == 0


def count_random(half):
    return sum(aten.node_effects(n).random for n in half.graph_module.graph.nodes if n.op == "call_function")


def test_a_plan_replays():
    joint = functionalize(joint_graph(layer, layer_inputs()))
    done = partition(joint, Budget(0))
    again = partition(joint, PartitionPlan.from_json(done.plan.to_json()))
    assert again.plan == done.plan
    texts = [[aten.print_ir(graph.graph_module) for graph in p.partition.graphs] for p in (again, done)]
    assert texts[0] == texts[1]


def test_the_joint_graph_is_not_changed():
    joint = functionalize(joint_graph(layer, layer_inputs()))
    before = aten.print_ir(joint.graph_module)
    for policy in POLICIES:
        partition(joint, policy)
    assert aten.print_ir(joint.graph_module) == before


def test_a_choice_that_leaves_something_out_is_refused():
    joint = functionalize(joint_graph(layer, layer_inputs()))
    with pytest.raises(InvalidArgumentError) as caught:
        partition(joint, PartitionPlan("mine", (), (), 0))
    assert caught.value.code == "partition.missing"
    with pytest.raises(InvalidArgumentError) as caught:
        partition(dataclasses.replace(joint, signature=dataclasses.replace(joint.signature, joint=None)))
    assert caught.value.code == "partition.joint"


@pytest.mark.parametrize("rule", ["H1", "H2", "H3"])
def test_the_checker_finds_wrong_halves(rule):
    joint = functionalize(joint_graph(lambda x: F.dropout(x.sin(), 0.5) * x, [torch.randn(4, requires_grad=True)]))
    done = partition(joint, SaveAll())
    half = done.partition.backwards[0] if rule == "H2" else done.partition.forward
    for node in list(half.graph_module.graph.nodes):
        if rule == "H3" and node.target is torch.ops.aten.bernoulli.p:
            node.args = (node.args[0], 0.25)
        elif rule != "H3" and node.target is torch.ops.aten.mul.Tensor:
            node.target = torch.ops.aten.add.Tensor
    with pytest.raises(VerifyError) as caught:
        check_halves(joint, *[g.graph_module for g in done.partition.graphs], *done.partition.halves)
    assert rule in {finding[0] for finding in caught.value.findings}


def test_random_numbers_in_the_backward_pass_are_refused():
    def program(x):
        return torch.utils.checkpoint.checkpoint(lambda x: F.dropout(x, 0.5).sin(), x, use_reentrant=False)

    joint = functionalize(joint_graph(program, [torch.randn(4, requires_grad=True)]))
    with pytest.raises(UnsupportedError) as caught:
        partition(joint)
    assert caught.value.code == "training.random_backward"


def test_what_eager_refuses_on_the_way_back_is_said_of_the_part():
    def program(x):
        y = x.exp()
        y.add_(1)
        return y

    joint = joint_graph(program, [torch.randn(4, requires_grad=True)]).signature.joint
    assert joint.gradients and ["modified by an inplace operation" in text for text in joint.raises] == [True]


def test_outputs_without_gradients_make_no_joint_graph():
    recorded = joint_graph(lambda x: x.detach() * 2, [torch.randn(4, requires_grad=True)])
    assert recorded.signature.joint is None and len(recorded.signature.outputs) == 1


def test_flash_attention_keeps_its_own_formula():
    def program(q, k, v):
        return F.scaled_dot_product_attention(q, k, v)

    inputs = [torch.randn(1, 2, 4, 8, requires_grad=True) for _ in range(3)]
    joint = functionalize(joint_graph(program, inputs))
    names = [str(n.target) for n in joint.graph_module.graph.nodes if n.op == "call_function"]
    assert any("flash_attention_for_cpu_backward" in name for name in names)
    done = partition(joint)
    out = program(*inputs)
    tangent = torch.randn_like(out)
    expected = torch.autograd.grad(out, inputs, tangent)
    with torch.no_grad():
        _, gradients = run_halves(done, [x.detach() for x in inputs], [tangent])
    torch.testing.assert_close([gradients[n] for n in range(3)], list(expected))


def test_fuel_counts_the_values_that_are_computed_again():
    def program(x):
        return x.sin().cos().exp().sin()

    joint = functionalize(joint_graph(program, (torch.randn(5, requires_grad=True),)))
    free = partition(joint, RecomputeAll()).plan
    found = [partition(joint, RecomputeAll(), fuel=n).plan for n in (*range(9), 50)]
    # views can't be saved: they are made again in any case
    again = [sum(not name.startswith("detach") for name in plan.recomputed) for plan in found]
    assert again[0] == 0 and again == sorted(again) and found[-1] == free
