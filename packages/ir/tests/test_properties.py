"""Random programs of both dialects: printing and parsing is the identity, and what is generated is valid."""

import torch
import torch.fx as fx
from hypothesis import HealthCheck, given, settings

from intarsia_ir import aten, meta
from intarsia_ir import torch as torch_dialect
from intarsia_ir._fx import copy_graph, wrap
from intarsia_testkit.aten_programs import AtenProgram, aten_programs
from intarsia_testkit.differential import check_pass, same_results
from intarsia_testkit.effect_programs import EffectProgram, effect_programs
from intarsia_testkit.fired import Tally
from intarsia_testkit.torch_programs import TorchProgram, torch_programs

CHECKS = settings(derandomize=True, deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
tally = Tally("ir: ops that went through text and back")


def round_trip(dialect: object, gm: fx.GraphModule) -> fx.GraphModule:
    """Print and parse; compare node by node, and the text once more."""
    text = dialect.print_ir(gm)  # type: ignore[attr-defined]
    back: fx.GraphModule = dialect.parse_ir(text, constants=dialect.constants_of(gm))  # type: ignore[attr-defined]
    assert dialect.print_ir(back) == text  # type: ignore[attr-defined]
    pairs = list(zip(gm.graph.nodes, back.graph.nodes, strict=True))
    twins = dict(pairs)
    for node, twin in pairs:
        assert (node.op, node.target) == (twin.op, twin.target)
        assert fx.node.map_arg((node.args, node.kwargs), twins.__getitem__) == (twin.args, twin.kwargs)
        assert meta.origins(node) == meta.origins(twin)
        assert meta.has_value(node) == meta.has_value(twin)
    return back


@CHECKS
@given(aten_programs())
def test_aten_text_is_the_identity(program: AtenProgram) -> None:
    for op in program.ops:
        tally.count(op)
    aten.verify(program.graph_module, functional=True, values=True)
    back = round_trip(aten, program.graph_module)
    args = program.inputs(1)
    same_results(aten.interpret(back, *args), aten.interpret(program.graph_module, *args))


@CHECKS
@given(effect_programs())
def test_effects_text_is_the_identity(program: EffectProgram) -> None:
    aten.verify(program.graph_module)
    round_trip(aten, program.graph_module)


@CHECKS
@given(torch_programs(writes=True))
def test_torch_text_is_the_identity(program: TorchProgram) -> None:
    torch_dialect.verify(program.graph_module)
    round_trip(torch_dialect, program.graph_module)


@CHECKS
@given(effect_programs())
def test_copying_a_graph_is_a_pass_that_changes_nothing(program: EffectProgram) -> None:
    def copy(gm: fx.GraphModule) -> fx.GraphModule:
        return wrap(gm, copy_graph(gm.graph)[0])

    result = check_pass(copy, program.graph_module, program.inputs(2), aten, rtol=0, atol=0)
    assert aten.print_ir(result) == aten.print_ir(program.graph_module)


@CHECKS
@given(torch_programs(regions=True))
def test_interpreting_leaves_no_ambient_state(program: TorchProgram) -> None:
    with torch.enable_grad():
        torch_dialect.interpret(program.graph_module, *program.inputs(1))
        assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
