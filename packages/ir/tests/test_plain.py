"""A program with its signature as a module: names, writes, aliases, and what is refused."""

import pytest
import torch
import torch.fx as fx

from intarsia_ir import aten
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.plain import plain_module
from intarsia_ir.records import (
    AliasOfInput,
    AliasOfOutput,
    ArgumentSource,
    AttributeSource,
    Constant,
    Fresh,
    InputItself,
    InputNumber,
    InputSpec,
    Joint,
    Role,
    Signature,
    SizeExpression,
    ViewStep,
    Write,
)
from intarsia_ir.torch import normalise

TEXT = """// dialect: aten 2
graph(%x: f32[2, 3], %w: f32[3]) {
  %0: f32[2, 3] = aten.mul.Tensor(%x, %w)
  %1: f32[3] = aten.add.Tensor(%w, 1)
  return (%0, %1)
}
"""
BELOW = AttributeSource(AttributeSource(ArgumentSource("self"), "layer"), "weight")
SYMBOLS = {"s0": InputNumber(0), "s1": InputNumber(0, "stride", 0)}


def module(outputs, *, writes=(), source=BELOW, **more):
    inputs = (InputSpec("x", Role.USER, ArgumentSource("x")), InputSpec("w", Role.BUFFER, source))
    signature = Signature(inputs, outputs, writes, symbols=SYMBOLS, **more)
    return plain_module(aten.parse_ir(TEXT), signature, (torch.arange(3.0),))


def test_tensors_have_their_own_names_and_are_written_behind_the_graph():
    made = module((Fresh(0),), writes=(Write(1, 1),))
    assert list(made.state_dict()) == ["layer.weight"]
    x = torch.ones(2, 3)
    torch.testing.assert_close(made(x), (torch.arange(3.0).expand(2, 3),))
    torch.testing.assert_close(made.layer.weight, torch.arange(1.0, 4.0))


def test_the_given_graph_stays_as_it_was():
    graph = aten.parse_ir(TEXT)
    before = aten.print_ir(graph)
    plain_module(graph, Signature((InputSpec("x"), InputSpec("w")), (Fresh(0),)), ())
    assert aten.print_ir(graph) == before


def test_every_kind_of_output():
    rows, step = SizeExpression("s0 - 1"), SizeExpression("s1")
    made = module(
        (
            Fresh(0),
            AliasOfInput(0, ((1, 3), (3, 1), 3)),
            AliasOfInput(
                0, ((), (), 0), steps=(ViewStep("aten.split.Tensor", (rows,), 1), ViewStep("aten.t.default", ()))
            ),
            AliasOfOutput(0, ((rows, 3), (step, 1), SizeExpression("math.floor(s1)"))),
            InputItself(0),
            Constant("text"),
        )
    )
    base = torch.randn(3, 3)
    x = base[1:]  # an offset of its own
    fresh, row, split, view, itself, text = made(x)
    torch.testing.assert_close(row, x[1:])
    torch.testing.assert_close(split, x[1:].t())
    torch.testing.assert_close(view, fresh[1:])
    assert itself is x and text == "text"
    row.fill_(7)
    torch.testing.assert_close(base[2], torch.full((3,), 7.0))


def test_outputs_nest_as_the_program_returned_them():
    tree = torch.utils._pytree.tree_structure({"a": 0, "b": [0]})
    assert [*module((Fresh(1), InputItself(0)), output_tree=tree)(torch.ones(2, 3))] == ["a", "b"]


def test_names_that_lead_through_each_other_are_told_apart():
    gm = aten.parse_ir("// dialect: aten 2\ngraph(%a: f32[], %b: f32[]) {\n  return (%a, %b)\n}\n")
    inputs = [
        InputSpec("a", Role.BUFFER, AttributeSource(ArgumentSource("self"), "layer")),
        InputSpec("b", Role.PARAMETER, BELOW),
    ]
    made = plain_module(
        gm, Signature(tuple(inputs), (InputItself(0), InputItself(1))), (torch.tensor(1), torch.tensor(2))
    )
    assert list(made.state_dict()) == ["layer", "layer_weight_"]
    assert [int(t) for t in made()] == [1, 2]


def test_modules_that_symbolic_tracing_gives():
    done = normalise(fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())))
    plain = plain_module(done.graph_module, done.signature, done.lifted)
    assert [name for name, _ in plain.named_parameters()] == ["0.weight", "0.bias"]
    assert plain(torch.zeros(1, 2)).requires_grad


@pytest.mark.parametrize(
    ("tensors", "more", "message"),
    [((), {}, "0 tensors are given for 1 parameters"), ((torch.zeros(3),), {"joint": Joint((), (), 1)}, "tangents")],
)
def test_refused(tensors, more, message):
    inputs = (InputSpec("x"), InputSpec("w", Role.PARAMETER))
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        plain_module(aten.parse_ir(TEXT), Signature(inputs, (Fresh(0),), **more), tensors)
    assert caught.value.code == "ir.plain"
