"""What the strategies promise: valid programs, all layouts, remakeable inputs; and that every rule fires."""

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intarsia_ir import aten
from intarsia_ir import torch as torch_dialect
from intarsia_testkit._aten_ops import FAMILIES
from intarsia_testkit.aten_programs import FAMILY_NAMES, AtenProgram, aten_programs
from intarsia_testkit.differential import same_results
from intarsia_testkit.effect_programs import EffectProgram, effect_programs
from intarsia_testkit.fired import Tally
from intarsia_testkit.loops_programs import LoopsProgram, loops_programs
from intarsia_testkit.strategies import TensorSpec, shapes, strided_tensors, tensor_specs
from intarsia_testkit.torch_programs import TorchProgram, torch_programs

CHECKS = settings(derandomize=True, deadline=None, max_examples=80, suppress_health_check=list(HealthCheck))
tally = Tally("testkit: ops in generated programs")


@CHECKS
@given(tensor_specs(dtypes=(torch.float32, torch.uint8, torch.complex64, torch.bool), min_size=0), st.integers(0, 9))
def test_specs_make_the_same_tensor_again(spec: TensorSpec, seed: int) -> None:
    one, two = spec.make(seed), spec.make(seed)
    assert one.shape == spec.shape and one.dtype is spec.dtype and one.stride() == two.stride()
    assert torch.equal(one, two)
    assert one.untyped_storage().data_ptr() != two.untyped_storage().data_ptr() or not one.numel()
    tally.count(f"layout {spec.layout}")


@CHECKS
@given(strided_tensors(writable=True))
def test_writable_tensors_can_be_written(tensor: torch.Tensor) -> None:
    tensor.copy_(torch.ones_like(tensor))
    assert bool((tensor == 1).all())


@CHECKS
@given(shapes(max_dims=2, max_size=3))
def test_shapes_are_in_range(shape: tuple[int, ...]) -> None:
    assert len(shape) <= 2 and all(1 <= n <= 3 for n in shape)


@CHECKS
@given(aten_programs())
def test_aten_programs_are_functional_and_valid(program: AtenProgram) -> None:
    for op in program.ops:
        tally.count(op)
    aten.verify(program.graph_module, functional=True)
    inputs = program.inputs(5)
    before = [t.clone() for t in inputs]
    aten.interpret(program.graph_module, *inputs)
    same_results(inputs, before, rtol=0, atol=0, strides=False)


@CHECKS
@given(st.sampled_from(FAMILY_NAMES).flatmap(lambda name: aten_programs(families=[name], max_nodes=4)))
def test_families_limit_the_ops(program: AtenProgram) -> None:
    aten.verify(program.graph_module, functional=True)


@CHECKS
@given(aten_programs(dtypes=(torch.bfloat16, torch.float16), max_nodes=4))
def test_half_types_are_generated_on_request(program: AtenProgram) -> None:
    assert {spec.dtype for spec in program.specs if not spec.index} <= {torch.bfloat16, torch.float16}
    aten.verify(program.graph_module, functional=True, values=True)


@CHECKS
@given(effect_programs())
def test_effect_programs_are_valid_and_runnable(program: EffectProgram) -> None:
    for op in program.ops:
        tally.count(op)
    aten.verify(program.graph_module)
    same_results(program.function(*program.inputs(3)), program.function(*program.inputs(3)), rtol=0, atol=0)


@CHECKS
@given(effect_programs(metadata=False))
def test_metadata_ops_can_be_left_out(program: EffectProgram) -> None:
    assert not {"transpose_.default", "unsqueeze_.default", "squeeze_.default"} & set(program.ops)


@CHECKS
@given(torch_programs(writes=True))
def test_torch_programs_are_valid_and_runnable(program: TorchProgram) -> None:
    for op in program.ops:
        tally.count(op)
    torch_dialect.verify(program.graph_module)
    torch_dialect.interpret(program.graph_module, *program.inputs(3))


@CHECKS
@given(loops_programs(lambda gm: gm, max_nodes=3))
def test_loops_programs_come_from_the_given_lowering(program: LoopsProgram) -> None:
    assert program.graph_module is program.aten.graph_module and len(program.inputs()) == len(program.aten.specs)


def test_every_family_has_rules_and_most_of_them_fire() -> None:
    assert all(FAMILIES.values())
    fired = [name for name, times in tally.counts().items() if times]
    # runs last in this file: what it asserts is what the tests above did
    assert len(fired) > 120, tally.text()
