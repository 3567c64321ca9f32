"""Random ATen programs, lowered: the check that every pass gets, for each shipped policy."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from intarsia_fuser import Greedy, InductorLike, NoFusion, apply, plan
from intarsia_loops import kernels, loops
from intarsia_lowering import lower
from intarsia_testkit.differential import check_pass
from intarsia_testkit.loops_programs import loops_programs


@pytest.mark.parametrize("policy", [NoFusion(), InductorLike(), Greedy()], ids=lambda p: p.name)
@settings(derandomize=True, deadline=None, max_examples=120)
@given(program=loops_programs(lower, max_nodes=10))
def test_fused_programs_pass_the_differential_check(policy, program):
    check_pass(lambda gm: apply(gm, plan(gm, policy=policy)), program.graph_module, program.inputs(), loops, kernels)
