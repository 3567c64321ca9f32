"""Random programs: the recorded graph does what the program does, verifies, and nothing given is changed."""

from itertools import compress

import torch
from hypothesis import given, settings

from intarsia_ir import aten, meta
from intarsia_ir import torch as torch_dialect
from intarsia_ir.records import Constant, Fresh, InputItself
from intarsia_recorder import MetaCache, record
from intarsia_testkit.fired import Tally
from intarsia_testkit.torch_programs import torch_programs

RECORDED = Tally("recorder: ATen ops recorded")


@settings(derandomize=True, deadline=None, max_examples=60)
@given(torch_programs(writes=True))
def test_recording_keeps_the_meaning(program):
    gm, inputs = program.graph_module, program.inputs(1)
    before, names = torch_dialect.print_ir(gm), {node.name for node in gm.graph.nodes}
    kept = [x.clone() for x in inputs]

    recorded = record(gm, inputs)

    assert torch_dialect.print_ir(gm) == before
    torch.testing.assert_close(list(inputs), kept, rtol=0, atol=0, equal_nan=True)
    aten.verify(recorded.graph_module, values=True)
    for node in recorded.graph_module.graph.nodes:
        if node.op == "call_function":
            RECORDED.count(str(node.target))
            assert meta.origins(node) and {origin.op for origin in meta.origins(node)} <= names
    check_same(recorded, gm, program)


def check_same(recorded, gm, program):
    """Interpret program and recording on equal inputs: same outputs to the last bit, same writes."""
    expected_inputs, actual_inputs = program.inputs(2), program.inputs(2)
    expected = torch_dialect.interpret(gm, *expected_inputs)
    results = aten.interpret(recorded.graph_module, *actual_inputs)
    exact = {"rtol": 0, "atol": 0, "equal_nan": True}
    torch.testing.assert_close(list(actual_inputs), list(expected_inputs), **exact)
    for spec, value in zip(recorded.signature.outputs, expected, strict=True):
        match spec:
            case Fresh(result=position, strides=strides):
                torch.testing.assert_close(results[position], value, **exact)
                if isinstance(value, torch.Tensor):
                    # those of dimensions of one element mean nothing, and fake tensors choose them differently
                    means = [size != 1 for size in value.shape] if value.numel() else []
                    assert list(compress(strides, means)) == list(compress(value.stride(), means))
            case InputItself(input=position):
                assert value is expected_inputs[position]
            case Constant(value=constant):
                assert constant == value


@settings(derandomize=True, deadline=None, max_examples=15)
@given(torch_programs(writes=True))
def test_a_warm_cache_changes_nothing(program):
    inputs = program.inputs(1)
    cold = record(program.graph_module, inputs)
    placeholders = cold.graph_module.graph.find_nodes(op="placeholder")
    mode = meta.value(placeholders[0]).fake_mode
    cache = MetaCache(mode)
    for _ in range(2):
        warm = record(program.graph_module, inputs, fake_mode=mode, cache=cache)
        assert aten.print_ir(warm.graph_module) == aten.print_ir(cold.graph_module)
        aten.verify(warm.graph_module, values=True)
