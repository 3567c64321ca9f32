"""Triton units become machine code without a GPU: kernels for sm_80 and sm_90, compiled and joined to a launch list."""

from __future__ import annotations

import pytest
import torch

import intarsia_functionalizer
import intarsia_fuser
import intarsia_loops
import intarsia_runtime
import intarsia_triton
from intarsia_ir.records import Target
from intarsia_runtime.cuda_unit import segments


def softmax(x, y):
    return torch.softmax(x * 2 + torch.sin(y), dim=-1).sum(0)


def lowered(function, *inputs):
    graph = torch.fx.symbolic_trace(function)
    aten = intarsia_functionalizer.functionalize(intarsia_functionalizer.to_aten(graph, inputs))
    loops = intarsia_loops.lower(aten.graph_module)
    return intarsia_fuser.apply(loops, intarsia_fuser.plan(loops))


@pytest.mark.parametrize("isa", ["sm_80", "sm_90"])
def test_kernels_are_compiled_ahead_of_time(isa, tmp_path):
    target = Target("cuda", isa, intarsia_runtime.detect_target().compiler)
    source = intarsia_triton.emit_unit(lowered(softmax, torch.randn(64, 100), torch.randn(64, 100)), target)
    library = intarsia_runtime.build(source, target, cache=intarsia_runtime.Cache(tmp_path))
    (segment,) = segments(source)
    assert len(source.launches) == 2  # one for the rows, one for the sum over them
    n_arguments = len(segment.buffers) + len(segment.sizes) + 1  # and the stream
    assert callable(library.launcher(segment.entry, n_arguments))
    again = intarsia_runtime.build(source, target, cache=intarsia_runtime.Cache(tmp_path))
    assert again.key == library.key
