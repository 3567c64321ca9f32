"""What a schedule says of launches is what a profiler counts; without fusion there are as many kernels as planned."""

import pytest
import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

import intarsia_functionalizer
import intarsia_fuser
import intarsia_loops
import intarsia_lowering
import intarsia_runtime
import intarsia_scheduler
import intarsia_triton
from intarsia_loops import kernels
from intarsia_loops.program import Kernel
from intarsia_scheduler import Measured, SchedulePlan

PROGRAMS = {
    "group norm": lambda x, w: F.silu(F.group_norm(x, 8, w)),
    "batch norm": lambda x, w: F.relu(F.batch_norm(x, None, None, w, training=True)),
    "few long rows": lambda x, w: torch.softmax(x.reshape(8, -1), -1),
    "sums and a scan": lambda x, w: (x.sum(), x.cumsum(-1), x.reshape(4, -1).sum(1)),
    "equal kernels": lambda x, w: (x * 2, (x + 0) * 2 + w.sum(), w * 2),
    "a long scan": lambda x, w: x.reshape(-1).cumsum(0),
}


@pytest.mark.parametrize("merges", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_launches_are_those_of_the_plan(name, merges, tmp_path):
    device = torch.device("cuda", 0)
    target, function = intarsia_runtime.detect_target(device), PROGRAMS[name]
    inputs = (torch.randn(8, 64, 32, 32, device=device), torch.randn(64, device=device))
    effects = intarsia_functionalizer.to_aten(torch.fx.symbolic_trace(function), inputs)
    loops = intarsia_lowering.lower(intarsia_functionalizer.functionalize(effects).graph_module, target=target)
    policy = intarsia_fuser.Greedy() if merges else intarsia_fuser.NoFusion()
    gm = intarsia_fuser.apply(loops, intarsia_fuser.plan(loops, policy=policy, target=target))
    made = intarsia_scheduler.scheduled(gm, target, Measured(merges=merges))
    source = intarsia_triton.emit_unit(made.launches)
    again = intarsia_scheduler.arrange(gm, SchedulePlan.from_json(made.plan.to_json()))
    assert intarsia_triton.emit_unit(again) == source
    planned = sum(isinstance(item, Kernel) for item in intarsia_loops.from_fx(gm).items)
    assert source.n_kernels == planned or (merges and source.n_kernels < planned)
    library = intarsia_runtime.build(source, target, cache=intarsia_runtime.Cache(tmp_path))
    call = intarsia_runtime.link(gm, source, library, device=device)
    expected = function(*inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    torch.testing.assert_close(tuple(call(*inputs)), expected, rtol=1e-3, atol=1e-2)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as counted:
        call(*inputs)
        torch.cuda.synchronize()
    launches = sum(event.count for event in counted.key_averages() if event.key.startswith("kernel"))
    assert launches == len(kernels.summarise(made.launches))
