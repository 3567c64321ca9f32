"""Items that need a size which a call gives run after it, and after the checks of that size, whatever is fused."""

import itertools

import pytest
import torch

from intarsia_fuser import Greedy, InductorLike, NoFusion, Priority, apply, plan
from intarsia_loops import from_fx, kernels, loops
from intarsia_loops.program import Extern
from intarsia_loops.shown import needed_symbols

TEXT = """// dialect: loops 2
symbol u0 in [0, 6]
symbol u1 in [0, inf]
graph(%x: f32[6], %n: i64[]) {
  %a: f32[6] = map[i0: 6] mul(load(%x, i0), f32(3.0))
  %at: i64[u1, 1]@(1, u1) = extern aten.nonzero.default(%a)
  u0 = extern aten._local_scalar_dense.default(%n)
  %b: f32[u0] = map[i0: u0] f32(1.0)
  = extern aten._assert_scalar.default(`u0 >= 0`, 'at least 0')
  = extern aten._assert_scalar.default(`u0 <= 6`, 'at most 6')
  %c: f32[u0] = map[i0: u0] add(load(%a, i0), load(%b, i0))
  %d: f32[u0] = map[i0: u0] sin(load(%c, i0))
  %e: f32[] = sum[; r0: u0] load(%d, r0)
  %f: i64[u1] = map[i0: u1] add(load(%at, i0, 0), index(u0))
  return (%d, %e, %f)
}
"""
POLICIES = [NoFusion(), Greedy(), InductorLike(), Priority()]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_sizes_and_their_checks_come_first(policy):
    gm = loops.parse_ir(TEXT)
    fused = apply(gm, plan(gm, policy=policy))
    kernels.verify(fused)
    program = from_fx(fused)
    checks = {k for k, item in enumerate(program.items) if isinstance(item, Extern) and not item.outs}
    assert len(checks) == 2
    for position, item in enumerate(program.items):
        made = item.outs if isinstance(item, Extern) else item.writes()
        if "u0" in needed_symbols(item, program.buffers) and not {"b", *checks} & {*made, position}:
            assert max(checks) < position
    x = torch.randn(6)
    for n in (0, 1, 4, 6):
        for want, made in zip(loops.interpret(gm, x, torch.tensor(n)), kernels.interpret(fused, x, torch.tensor(n))):
            torch.testing.assert_close(made, want)
    with pytest.raises(RuntimeError, match="at most 6"):
        kernels.interpret(fused, x, torch.tensor(7))


def test_what_follows_a_check_is_not_merged_with_what_comes_before_it():
    """%a is read by %c and by the call; %b may run before the checks. One kernel of both would have to."""
    gm = loops.parse_ir(TEXT)
    program = from_fx(apply(gm, plan(gm, policy=Greedy())))
    kernels_of = [item for item in program.items if not isinstance(item, Extern)]
    steps = [{step.out for step in kernel.steps} for kernel in kernels_of]
    assert not any("a" in one and "c" in one for one in steps)
    assert any({"c", "d"} <= one or "d" in one for one in steps)


def test_a_call_stays_for_its_size_alone():
    text = TEXT.replace(
        "%f: i64[u1] = map[i0: u1] add(load(%at, i0, 0), index(u0))", "%f: i64[u1] = map[i0: u1] index(i0)"
    )
    gm = loops.parse_ir(text)
    program = from_fx(apply(gm, plan(gm, policy=Greedy())))
    assert any("at" in item.outs for item in program.items if isinstance(item, Extern))
    dead = loops.parse_ir(text.replace("return (%d, %e, %f)", "return (%d, %e)"))
    program = from_fx(apply(dead, plan(dead, policy=Greedy())))
    assert not any("at" in item.outs for item in program.items if isinstance(item, Extern))


def test_a_plan_is_the_same_after_text():
    gm = loops.parse_ir(TEXT)
    again = loops.parse_ir(loops.print_ir(gm))
    for a, b in itertools.pairwise([plan(gm, policy=Greedy()), plan(again, policy=Greedy())]):
        assert a == b
