"""Programs leave the stack at any level: as a plain module, and as an exported program of torch's, and are the same."""

from __future__ import annotations

import copy
import io

import pytest
import torch
import torch.fx as fx

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.plain import plain_module
from intarsia_recorder import lifted_values
from intarsia_testkit.differential import clone_all
from integration.levels import LEVELS, PROGRAMS, below_torch, plain_at, program


def called(module, inputs):
    """Return what a call gives, its arguments afterwards, and the module's tensors afterwards by name."""
    given = clone_all(inputs)
    with torch.no_grad():
        results = module(*given)
    return results, given, module.state_dict()


def same(module, reference, inputs):
    results, given, state = called(module, inputs)
    want, want_given, want_state = called(reference, inputs)
    torch.testing.assert_close((results, given), (want, want_given))
    assert {*want_state} == {*state}
    torch.testing.assert_close(dict(state), dict(want_state))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("level", LEVELS)
def test_a_plain_module_equals(level, name):
    gm, inputs = program(name)
    reference = copy.deepcopy(gm)
    made = plain_at(level, gm, inputs)
    assert isinstance(made, fx.GraphModule) and not made.graph.find_nodes(op="call_module")
    same(made, reference, inputs)
    same(copy.deepcopy(made), reference, inputs)


def test_gradients_flow_to_its_parameters():
    gm, inputs = program("attention")
    made = plain_at("aten", copy.deepcopy(gm), inputs)
    assert {*dict(made.named_parameters())} == {*dict(gm.named_parameters())}
    for module in (made, gm):
        module(*inputs).square().sum().backward()
    for name, parameter in gm.named_parameters():
        torch.testing.assert_close(made.get_parameter(name).grad, parameter.grad)


def test_results_share_memory_as_the_programs_do():
    gm, (x,) = program("views")
    for level in LEVELS:
        turned, y, rest, itself, three = plain_at(level, gm, (x,))(x)
        assert itself is x and three == 3
        assert turned.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        assert rest.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


@pytest.mark.peer
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("level", LEVELS)
def test_an_exported_program_equals(level, name):
    gm, inputs = program(name)
    reference = copy.deepcopy(gm)
    exported = torch.export.export(plain_at(level, gm, inputs), tuple(clone_all(inputs)))
    same(exported.module(), reference, inputs)
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    same(torch.export.load(file).module(), reference, inputs)


ROWS = {0: torch.export.Dim("rows", min=3, max=100)}


class Open(torch.nn.Module):
    def __init__(self, *, tells: bool):
        super().__init__()
        self.tells = tells

    def forward(self, x):
        y = torch.softmax(x * 2, -1)
        return y.reshape(-1), y[1:], *([x.shape[0] * 2] if self.tells else [])


def opened(level, model):
    """Return a plain module of a level, its sizes symbols."""
    given = torch.export.export(model, (torch.randn(5, 4),), dynamic_shapes=(ROWS,))
    made, signature = next((graph, spec) for name, graph, spec in below_torch(given, None) if name == level)
    return plain_module(made, signature, ())


@pytest.mark.peer
@pytest.mark.parametrize("level", LEVELS[1:])
def test_sizes_stay_open(level):
    model = Open(tells=level in ("effects", "aten"))
    made = [opened(level, model)]
    if level in ("effects", "aten"):  # what nests compute is exported for the sizes of the example
        made.append(torch.export.export(made[0], (torch.randn(5, 4),), dynamic_shapes=(ROWS,)).module())
    for n in (4, 9):
        for module in made:
            same(module, model, (torch.randn(n, 4),))


@pytest.mark.peer
def test_a_size_that_is_only_stated_is_named():
    with pytest.raises(InvalidArgumentError, match=r"the size 2\*s0, which this level states"):
        opened("loops", Open(tells=True))


@pytest.mark.peer
@pytest.mark.parametrize("level", ["aten", "kernels"])
def test_torch_compile_takes_it(level):
    gm, inputs = program("attention")
    fast = torch.compile(plain_at(level, gm, inputs), backend="aot_eager")
    torch.testing.assert_close(fast(*inputs), gm(*inputs))
    torch._dynamo.reset()


def test_tensors_that_are_missing_are_counted():
    captured = fx.symbolic_trace(torch.nn.Linear(2, 3))
    graph, signature = next(iter(((g, s) for n, g, s in below_torch(captured, (torch.zeros(1, 2),)))))
    assert len(lifted_values(captured)) == 2
    with pytest.raises(InvalidArgumentError, match="1 tensors are given for 2 parameters and buffers") as caught:
        plain_module(graph, signature, lifted_values(captured)[:1])
    assert caught.value.code == "ir.plain"
