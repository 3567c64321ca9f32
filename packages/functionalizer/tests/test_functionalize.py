"""One idea a test: text in, text out. Each says what must happen; the refused cases say with which code."""

import textwrap

import pytest
import torch

from intarsia_functionalizer import functionalize, to_aten
from intarsia_functionalizer.builder import dense_order
from intarsia_ir import aten, meta
from intarsia_ir.errors import InvalidArgumentError, UnsupportedError, VerifyError
from intarsia_ir.higher_order import HigherOrderOp
from intarsia_ir.records import AliasOfInput, AliasOfOutput, Constant, Fresh, InputItself, ViewStep, Write
from intarsia_ir.values import Recorded


def graph(signature, body):
    lines = textwrap.dedent(body).strip().splitlines()
    text = "\n".join(
        f"  {line}  # model.py:{n} in f" if "=" in line else f"  {line}" for n, line in enumerate(lines, 1)
    )
    return aten.parse_ir(f"// dialect: aten 2\ngraph({signature}) {{\n{text}\n}}\n")


def body(gm):
    """The lines of a graph, without types and origins."""
    lines = aten.print_ir(gm).splitlines()
    found = []
    for line in lines:
        line = line.split("#")[0].strip()
        if " = " in line:
            name, value = line.split(" = ", 1)
            found.append(f"{name.split(':')[0]} = {value.split(' !')[0]}")
        elif line.startswith("return"):
            found.append(line)
    return found


def test_a_functional_graph_is_copied():
    gm = graph(
        "%x: f32[2, 3]", "%0: f32[6] = aten.view.default(%x, [6])\n%1: f32[6] = aten.neg.default(%0)\nreturn (%1,)"
    )
    done = functionalize(gm)
    assert body(done.graph_module) == body(gm)
    assert done.graph_module is not gm and done.graph_module.graph is not gm.graph
    assert done.signature.outputs == (Fresh(0, (1,)),) and not done.signature.writes and not done.guards


def test_a_write_through_a_view_of_an_input_reaches_the_input():
    gm = graph(
        "%x: f32[2, 3]",
        """
        %0: f32[6] = aten.view.default(%x, [6])
        %1: f32[6] = aten.add_.Tensor(%0, 1)
        %2: f32[2, 3] = aten.mul.Tensor(%x, 2)
        return (%2,)
        """,
    )
    done = functionalize(gm)
    assert body(done.graph_module) == [
        "%0 = aten.view.default(%x, [6])",
        "%1 = aten.add.Tensor(%0, 1)",
        "%2 = aten.view.default(%1, [2, 3])",
        "%3 = aten.mul.Tensor(%2, 2)",
        "return (%2, %3)",
    ]
    assert done.signature.writes == (Write(0, 0),) and done.signature.outputs == (Fresh(1, (3, 1)),)
    assert done.signature.inputs[0].written


def test_a_slice_assignment_becomes_a_scatter():
    gm = graph(
        "%x: f32[4]",
        """
        %0: f32[4] = aten.neg.default(%x)
        %1: f32[2]+1 = aten.slice.Tensor(%0, 0, 1, 3)
        %2: f32[2]+1 = aten.fill_.Scalar(%1, 5)
        return (%0,)
        """,
    )
    assert body(functionalize(gm).graph_module) == [
        "%0 = aten.neg.default(%x)",
        "%1 = aten.slice.Tensor(%0, 0, 1, 3)",
        "%2 = aten.full_like.default(%1, 5)",
        "%3 = aten.slice_scatter.default(%0, %2, 0, 1, 3)",
        "return (%3,)",
    ]


@pytest.mark.parametrize("shape", [(1,), (1, 1), (1, 3), (2, 3)])
def test_a_copy_of_fewer_dimensions_is_laid_out_as_what_it_fills(shape):
    def program(x):
        return torch.empty(shape).copy_(x)

    x = torch.ones(shape[-1:] if shape[-1] > 1 else ())
    done = functionalize(to_aten(program, (x,)))
    (result,) = aten.interpret(done.graph_module, x)
    assert result.stride() == program(x).stride() and torch.equal(result, program(x))


def test_a_copy_needs_no_op():
    """What is copied becomes the contents: no `copy_` and no `copy`."""
    gm = graph(
        "%x: f32[3], %y: f32[3]",
        "%0: f32[3] = aten.sin.default(%y)\n%1: f32[3] = aten.copy_.default(%x, %0)\nreturn ()",
    )
    done = functionalize(gm)
    assert body(done.graph_module) == ["%0 = aten.sin.default(%y)", "return (%0,)"]
    assert done.signature.writes == (Write(0, 0),)


def test_swapped_inputs_are_copied_before_either_changes():
    def swap(x, y):
        kept = x.clone()
        x.copy_(y)
        y.copy_(kept)

    x, y = torch.zeros(2), torch.ones(2)
    done = functionalize(to_aten(swap, (x, y)))
    assert done.signature.writes == (Write(0, 0), Write(1, 1))
    assert body(done.graph_module)[:1] == ["%0 = aten.clone.default(%arg0)"]
    results = aten.interpret(done.graph_module, x, y)
    x.copy_(results[0])
    y.copy_(results[1])
    assert x.tolist() == [1, 1] and y.tolist() == [0, 0]


def test_strides_survive_a_write():
    """A transposed buffer keeps its layout though the op that computes new contents would choose another."""

    def program(x, y):
        buffer = torch.empty_strided((2, 3), (1, 2))
        buffer.copy_(x)
        return buffer, buffer.t().view(6)

    done = functionalize(to_aten(program, (torch.randn(2, 3), torch.randn(2, 3))))
    assert [spec.layout[:2] for spec in done.signature.outputs] == [((2, 3), (1, 2)), ((6,), (1,))]
    (result,) = done.graph_module.graph.find_nodes(op="output")[0].args[0]
    assert meta.value(result).stride() == (1, 2)


def test_random_ops_and_checks_stay_though_nobody_uses_them():
    def program(x):
        torch.rand(3)
        torch._assert_async((x > 0).any())
        return x.relu_()

    done = functionalize(to_aten(program, (torch.ones(2),)))
    ops = [n.target for n in done.graph_module.graph.nodes if n.op == "call_function"]
    assert torch.ops.aten.rand.default in ops and torch.ops.aten._assert_async.default in ops


def test_origins_and_phase_follow_the_rewrites():
    gm = graph("%x: f32[2]", "%0: f32[2] = aten.add_.Tensor(%x, 1)\n%1: f32[2] = aten.t_.default(%0)\nreturn (%0,)")
    with pytest.raises(UnsupportedError):
        functionalize(gm)  # t_ changes the caller's own tensor
    gm = graph("%x: f32[2]", "%0: f32[2] = aten.add_.Tensor(%x, 1)\nreturn (%0,)")
    (add,) = (n for n in gm.graph.nodes if n.op == "call_function")
    meta.set_phase(add, "backward")
    (new,) = (n for n in functionalize(gm).graph_module.graph.nodes if n.op == "call_function")
    assert meta.origins(new) == meta.origins(add) and meta.phase(new) == "backward"


# ---- outputs -----------------------------------------------------------------------------------------------------


def test_outputs_that_alias_inputs_are_steps_and_layout():
    done = functionalize(to_aten(lambda x: (x, x.view(6)[2:], x.add_(1)), (torch.zeros(2, 3),)))
    itself, view, returned = done.signature.outputs
    assert itself == returned == InputItself(0)
    assert view == AliasOfInput(
        0,
        ((4,), (1,), 2),
        (ViewStep("aten.view.default", ([6],)), ViewStep("aten.slice.Tensor", (0, 2, 9223372036854775807))),
    )


def test_offsets_count_from_the_input_not_from_its_storage():
    x = torch.zeros(8)[2:]
    done = functionalize(to_aten(lambda x: x[1:], (x,)))
    assert done.signature.outputs[0].layout == ((5,), (1,), 1)


def test_outputs_that_share_a_storage_share_one_result():
    def program(x):
        y = x * 2
        return y[0], y, y[1], y

    done = functionalize(to_aten(program, (torch.zeros(2, 3),)))
    first, whole, second, again = done.signature.outputs
    assert whole == again == Fresh(0, (3, 1))
    assert isinstance(first, AliasOfOutput) and first.base == 0 and second.layout == ((3,), (1,), 3)
    assert len(done.graph_module.graph.find_nodes(op="output")[0].args[0]) == 1


def test_a_single_dense_view_is_a_result_of_its_own_and_a_view_with_gaps_is_not():
    dense = functionalize(to_aten(lambda x: (x * 2).t(), (torch.zeros(2, 3),)))
    assert dense.signature.outputs == (Fresh(0, (1, 3)),)
    gaps = functionalize(to_aten(lambda x: (x * 2)[:, 1], (torch.zeros(2, 3),)))
    assert isinstance(gaps.signature.outputs[0], AliasOfOutput)


def test_two_storages_with_equal_contents_are_two_results():
    def program(x):
        y, z = x * 2, torch.empty(3)
        z.copy_(y)
        return y, z

    done = functionalize(to_aten(program, (torch.zeros(3),)))
    assert [spec.result for spec in done.signature.outputs] == [0, 1]


def test_a_fresh_output_is_never_the_memory_of_an_input():
    def program(x):
        y = torch.empty(3)
        y.copy_(x)
        return y

    done = functionalize(to_aten(program, (torch.zeros(3),)))
    x = torch.ones(3)
    (result,) = aten.interpret(done.graph_module, x)
    assert result.data_ptr() != x.data_ptr()


def test_constants():
    weight = torch.arange(6.0).view(2, 3)
    done = functionalize(to_aten(lambda x: (weight, weight[1], 4, None), (torch.zeros(3),)))
    whole, row, four, none = done.signature.outputs
    assert whole.value is weight and row.value.data_ptr() == weight[1].data_ptr()
    assert (four, none) == (Constant(4), Constant(None))


def test_functionalizing_twice_is_functionalizing_once():
    once = functionalize(to_aten(lambda x: x.view(-1).add_(1), (torch.zeros(2, 3),)))
    twice = functionalize(once)
    assert twice == once
    pure = functionalize(to_aten(lambda x: x + 1, (torch.zeros(2),)))
    again = functionalize(pure)
    assert aten.print_ir(again.graph_module) == aten.print_ir(pure.graph_module) and again.signature == pure.signature


# ---- fuel --------------------------------------------------------------------------------------------------------


def writes_in(gm):
    return [str(n.target) for n in gm.graph.nodes if aten.node_effects(n).writes]


def test_fuel_counts_writes_and_the_rest_stay():
    def program(x):
        y = x * 1
        y.add_(1)
        y[0].mul_(2)
        x.sub_(1)
        return y

    recorded = to_aten(program, (torch.zeros(2, 2),))
    assert writes_in(functionalize(recorded, fuel=0).graph_module) == [
        "aten.add_.Tensor",
        "aten.mul_.Tensor",
        "aten.sub_.Tensor",
    ]
    assert writes_in(functionalize(recorded, fuel=2).graph_module) == ["aten.sub_.Tensor"]
    assert writes_in(functionalize(recorded, fuel=3).graph_module) == []


# ---- refused -----------------------------------------------------------------------------------------------------


def refused(program, *inputs, code):
    recorded = to_aten(program, inputs)
    with pytest.raises(UnsupportedError) as caught:
        functionalize(recorded)
    assert caught.value.code == code
    assert caught.value.where or code == "functionalize.overlap"


def test_a_written_constant_is_refused():
    weight = torch.zeros(3)
    refused(lambda x: weight.add_(x), torch.zeros(3), code="functionalize.constant")


def test_changed_metadata_of_an_input_is_refused():
    refused(lambda x: x.t_(), torch.zeros(2, 3), code="functionalize.metadata")


def test_another_storage_for_a_tensor_is_refused():
    refused(lambda x: x.sin().set_(x), torch.zeros(3), code="functionalize.storage")


def test_as_strided_beyond_a_written_tensor_is_refused():
    def program(x):
        y = x.as_strided((8,), (1,), 0)
        x.add_(1)
        return y * 1

    refused(program, torch.zeros(8)[::2], code="functionalize.as_strided")


def test_as_strided_with_an_offset_in_the_storage_of_a_written_input_is_refused():
    """Where the input starts in its storage may differ from call to call."""

    def program(x):
        x.add_(1)
        return x.as_strided((2,), (1,), 0) * 1

    refused(program, torch.zeros(8), code="functionalize.as_strided")


def test_as_strided_with_an_offset_in_the_storage_of_an_input_is_regenerated_as_it_is():
    done = functionalize(to_aten(lambda x: x.as_strided((2, 2), (2, 1), 1)[1], (torch.zeros(8),)))
    (output,) = done.signature.outputs
    assert [(step.op, step.args) for step in output.steps] == [
        ("aten.as_strided.default", ([2, 2], [2, 1], 1)),
        ("aten.select.int", (0, 1)),
    ]


def test_copies_of_empty_tensors_have_no_gaps_to_fill():
    """Both results of qr are one node's results in layouts that no contiguous copy has."""
    x = torch.zeros(0, 2, 0)
    done = functionalize(to_aten(lambda x: torch.linalg.qr(x), (x,)))
    results = aten.interpret(done.graph_module, x)
    assert [r.shape for r in results] == [r.shape for r in torch.linalg.qr(x)]


def test_a_graph_without_values_is_refused():
    gm = aten.parse_ir("// dialect: aten 2\ngraph(%x) { %0 = aten.neg.default(%x)  # m.py:1 in f\n return (%0,) }")
    with pytest.raises(VerifyError, match="A6"):
        functionalize(gm)
    for node in gm.graph.nodes:
        node.meta.clear()
    with pytest.raises(InvalidArgumentError, match=r"functionalize\.values"):
        functionalize(gm, check=False)


def test_writes_in_graph_and_signature_are_refused():
    done = functionalize(to_aten(lambda x: x.add_(1), (torch.zeros(3),)))
    effects = to_aten(lambda x: x.add_(1), (torch.zeros(3),))
    with pytest.raises(InvalidArgumentError, match=r"functionalize\.twice"):
        functionalize(Recorded(effects.graph_module, done.signature))


def test_a_write_to_nothing_changes_nothing(check_program):
    """An empty slice of an expanded tensor: no element stands for the copies."""

    def program(x):
        part = x.expand(3, 4)[2:2]
        part.fill_(7)
        return part, x * 2

    check_program(program, torch.zeros(4))


def test_results_of_one_call_are_returned_without_copies():
    done = functionalize(to_aten(lambda x: x.topk(2), (torch.rand(4, 5),)))
    assert "clone" not in str(done.graph_module.code) and len(list(done.graph_module.graph.nodes)) == 5


@pytest.mark.parametrize("strides", [(1, 4, 4), (1, 8, 4), (4, 4, 1), (2, 1, 1), (2, 2, 1)])
def test_a_copy_has_the_strides_of_dimensions_of_one_element(strides):
    like = torch.empty_strided((2, 1, 4) if strides[0] == 4 else (4, 1, 2), strides)
    order = dense_order(like)
    copy = like.permute(order).contiguous().permute([order.index(dim) for dim in range(3)])
    assert copy.stride() == like.stride()


# ---- calls with subgraphs


def conditional(second):
    text = f"""// dialect: aten 2
graph(%p: b8[], %x: f32[3]) {{
  %0: (f32[3],) = cond[
    graph(%x: f32[3]) {{
      %0: f32[3] = aten.sin.default(%x)  # a.py:1 in f
      %1: f32[3] = aten.mul_.Tensor(%0, 2)  # a.py:2 in f
      return (%0,)
    }}
    graph(%x: f32[3]) {{
      {second}
    }}
  ](%p, %x)  # a.py:4 in f
  %1: f32[3] = operator.getitem(%0, 0)  # a.py:4 in f
  %2: f32[3] = aten.add_.Tensor(%x, %1)  # a.py:5 in f
  return (%1,)
}}
"""
    return aten.parse_ir(text)


def test_graphs_of_a_higher_order_op_are_made_functional():
    done = functionalize(conditional("%0: f32[3] = aten.neg.default(%x)  # a.py:3 in f\n      return (%0,)"))
    aten.verify(done.graph_module, functional=True)
    (op,) = [n.target for n in done.graph_module.graph.nodes if isinstance(n.target, HigherOrderOp)]
    assert [str(n.target) for n in op.programs[0].graph.nodes if n.op == "call_function"] == [
        "aten.sin.default",
        "aten.mul.Tensor",
    ]
    assert len(done.signature.writes) == 1
    x = torch.tensor([1.0, 2.0, 3.0])
    results = aten.interpret(done.graph_module, torch.tensor(True), x)
    torch.testing.assert_close(results[done.signature.writes[0].result], x + 2 * x.sin())
    torch.testing.assert_close(results[done.signature.outputs[0].result], 2 * x.sin())


@pytest.mark.parametrize(
    "second",
    [
        "return (%x,)",
        "%0: f32[3] = aten.neg_.default(%x)  # a.py:3 in f\n"
        "%1: f32[3] = aten.sin.default(%0)  # a.py:3 in f\n return (%1,)",
    ],
)
def test_a_graph_that_does_more_than_compute_is_refused(second):
    with pytest.raises(UnsupportedError, match="writes an input, or gives memory that isn't its own") as caught:
        functionalize(conditional(second))
    assert caught.value.code == "functionalize.subgraph" and "x.clone()" in caught.value.hints[0]
