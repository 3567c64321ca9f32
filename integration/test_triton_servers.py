"""Kernels compiled by real servers, without a GPU: machine code for one, Triton's message for a mistake."""

import pytest

from intarsia_ir.errors import InternalError
from intarsia_ir.records import KernelSource, Launch, Target
from intarsia_runtime.triton_build import compile_kernels

TEXT = """
import triton
import triton.language as tl

@triton.jit
def kernel0(p0, XBLOCK: tl.constexpr = 128):
    tl.store(p0 + tl.arange(0, XBLOCK), {value})

KERNELS = {{"kernel0": {{
    "signature": {{"p0": "*fp32"}}, "constants": {{"XBLOCK": 128}}, "options": {{"num_warps": 4}},
}}}}
"""


def unit(value):
    return KernelSource(TEXT.format(value=value), "triton", launches=(Launch("kernel0", ("x",), (), (0, 1), ("1",)),))


def test_a_kernel_is_compiled(tmp_path):
    facts = compile_kernels(unit("1.0"), Target("cuda", "sm_90"), folder=tmp_path, timeout_s=100.0)
    assert facts["kernel0"]["num_warps"] == 4
    assert (tmp_path / "kernel0.bin").read_bytes()[:4] == b"\x7fELF"


def test_a_mistake_is_told(tmp_path):
    with pytest.raises(InternalError, match="no_such_name") as caught:
        compile_kernels(unit("no_such_name"), Target("cuda", "sm_90"), folder=tmp_path, timeout_s=100.0)
    assert caught.value.code == "runtime.triton_failed"
