"""Lowering keeps the meaning of random programs, whatever the fuel."""

from hypothesis import given, settings
from hypothesis import strategies as st

import intarsia_ir.aten
import intarsia_loops
import intarsia_lowering
from intarsia_testkit.aten_programs import AtenProgram, aten_programs
from intarsia_testkit.differential import check_pass

SETTINGS = settings(derandomize=True, deadline=None, max_examples=40)
PROGRAMS = aten_programs(max_nodes=8)


@settings(SETTINGS, max_examples=120)
@given(PROGRAMS)
def test_lowering_keeps_the_meaning(aten: AtenProgram) -> None:
    check_pass(intarsia_lowering.lower, aten.graph_module, aten.inputs(), intarsia_ir.aten, intarsia_loops.loops)


@SETTINGS
@given(PROGRAMS, st.integers(0, 3))
def test_fuel_keeps_the_meaning(aten: AtenProgram, fuel: int) -> None:
    check_pass(
        lambda gm: intarsia_lowering.lower(gm, fuel=fuel),
        aten.graph_module,
        aten.inputs(),
        intarsia_ir.aten,
        intarsia_loops.loops,
    )
