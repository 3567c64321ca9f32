"""The kernels of `benchmarks/kernels.py` at sizes that interpreters can run, and their launches in Triton's.

`test_benchmark_kernels.py` runs this file, with `TRITON_INTERPRET=1`.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import intarsia_functionalizer
import intarsia_fuser
import intarsia_loops
import intarsia_lowering
import intarsia_triton
from intarsia_ir.records import Target
from intarsia_loops import Program, kernels
from intarsia_loops.program import Extern
from intarsia_loops.run import bind, bind_results, output_of
from intarsia_scheduler import scheduled

ROOT = Path(__file__).parent.parent
BF16 = torch.bfloat16
SM_90, GFX942 = Target("cuda", "sm_90"), Target("cuda", "gfx942")
GPUS = {
    "sm_90": SM_90,
    "gfx942": GFX942,
    "tiny sm_90": replace(SM_90, measured=replace(SM_90.machine, processors=4, register_bytes=1024)),
}


def module_of(path: Path, name: str) -> ModuleType:
    """Return a module that is in no package."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


CASES = {case.name: case for case in module_of(ROOT / "benchmarks" / "kernels.py", "benchmark_kernels").KERNELS}


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, dtype=dtype)


def halves(*shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(randn(*shape, dtype=BF16) for shape in shapes)


#: Name -> inputs of the kernel: no extent is a multiple of a vector where it needn't be.
SMALL: dict[str, Callable[[], tuple[Any, ...]]] = {
    "layer_norm_f32": lambda: (randn(5, 267), randn(267), randn(267)),
    "layer_norm_bf16": lambda: halves((5, 300), (300,), (300,)),
    "add_rms_norm_bf16": lambda: halves((5, 267), (5, 267), (267,)),
    "softmax_narrow_f32": lambda: (randn(33, 37),),
    "softmax_wide_bf16": lambda: halves((2, 2101)),
    "cross_entropy_f32": lambda: (randn(5, 331), torch.randint(0, 331, (5,))),
    "sum_rows_f32": lambda: (randn(6, 483),),
    "sum_columns_f32": lambda: (randn(2100, 5),),
    "sum_all_f32": lambda: (randn(64, 101),),
    "transposed_add_f32": lambda: (randn(45, 45), randn(45, 45)),
    "rotary_bf16": lambda: halves((2, 3, 17, 10), (17, 10), (17, 10)),
    "swiglu_bf16": lambda: halves((7, 145), (7, 145)),
    "batch_norm_relu_f32": lambda: (randn(2, 6, 9, 11), *(randn(6) for _ in range(4))),
    "batch_norm_training_relu_f32": lambda: (randn(6, 3, 19, 20), randn(3), randn(3)),
    "group_norm_silu_bf16": lambda: halves((1, 96, 5, 7), (96,), (96,)),
    "embedding_norm_f32": lambda: (torch.randint(0, 11, (9,)), randn(11, 137), randn(137), randn(137)),
    "cat_pointwise_f32": lambda: (randn(7, 91), randn(7, 91)),
    "argmax_logsumexp_f32": lambda: (randn(3, 801),),
    "cumsum_f32": lambda: (randn(6, 253),),
    "pool_gelu_f32": lambda: (randn(2, 3, 12, 14),),
    "bias_gelu_bf16": lambda: halves((7, 145), (145,)),
    "adamw_f32": lambda: tuple([torch.rand(67) for _ in range(5)] for _ in range(4)),
    "attention_bf16": lambda: (*halves(*[(2, 19, 8)] * 3), torch.ones(19, 19, dtype=torch.bool).tril()),
    "linear_gelu_bf16": lambda: halves((5, 12), (37, 12), (37,)),
    "tiny_ops_f32": lambda: (randn(16, 16),),
}


def inputs_of(name: str) -> tuple[Any, ...]:
    """Return the inputs of a kernel, the same each time."""
    torch.manual_seed(0)
    return SMALL[name]()


def planned(name: str, inputs: tuple[Any, ...], target: Target) -> Program:
    """Return the kernels of a function for a target; its inputs are the leaves of the function's."""
    aten = intarsia_functionalizer.functionalize(intarsia_functionalizer.to_aten(CASES[name].function, inputs))
    loops = intarsia_lowering.lower(aten.graph_module, facts=aten.facts, target=target)
    plan = intarsia_fuser.plan(loops, policy=intarsia_fuser.Greedy(), target=target)
    return intarsia_loops.from_fx(intarsia_fuser.apply(loops, plan))


@pytest.fixture(scope="module")
def interpreter() -> ModuleType:
    return module_of(ROOT / "packages" / "triton" / "tests" / "interpreter.py", "triton_interpreter")


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often each function is launched."""
    from triton.runtime.interpreter import InterpretedFunction

    counts, original = Counter[str](), InterpretedFunction.run

    def run(function: Any, *args: Any, **keywords: Any) -> Any:
        counts[function.fn.__name__] += 1
        return original(function, *args, **keywords)

    monkeypatch.setattr(InterpretedFunction, "run", run)
    yield counts


@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize("name", CASES)
def test_launches_are_right_and_as_many_as_are_told(
    name: str, target: str, interpreter: ModuleType, launched: Counter[str], tmp_path: Path
) -> None:
    assert os.environ.get("TRITON_INTERPRET") == "1", "see above"
    inputs = inputs_of(name)
    program = planned(name, inputs, GPUS[target])
    launches = scheduled(program, GPUS[target]).launches
    source, flat = intarsia_triton.emit_unit(launches), torch.utils._pytree.tree_leaves(inputs)
    memory: dict[str, Tensor] = dict(program.constants)
    sizes = bind(program, flat, memory)
    at, left = 0, list(source.launches)
    while at < len(program.items):
        item = program.items[at]
        due = [launch for launch in left if launch.items[0] <= at]
        if due:
            left = [launch for launch in left if launch.items[0] > at]
            memory = interpreter.run(replace(source, launches=tuple(due)), program.buffers, memory, tmp_path)
            at = max(launch.items[1] for launch in due)
        else:
            assert isinstance(item, Extern), item
            memory.update(bind_results(item, program.buffers, memory, sizes))
            at += 1
    found = tuple(output_of(value, memory, sizes) for value in program.outputs)
    wanted = kernels.interpret(intarsia_loops.to_fx(program), *flat)
    # what is rounded to bf16 may be the next number
    torch.testing.assert_close(found, wanted, rtol=8e-3 if found[0].dtype == BF16 else 1e-4, atol=1e-4)
    told = kernels.summarise(launches)  # what `explain` lists
    assert launched.total() == len(told) > 0
