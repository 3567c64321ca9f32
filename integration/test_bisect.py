"""41 faults planted over all passes: `bisect` names the stage and the rewrite, and its reproducer shows the fault."""

from __future__ import annotations

import pytest
import torch

import intarsia
from intarsia_command.bisect import Found, bisected
from intarsia_command.bisecting import operations
from intarsia_command.programs import Program, load
from integration.planted import PROGRAMS, Fault, faults, planted

MOST_OPERATIONS = 5
LEAST = 36
FAULTS = faults()
named: list[str] = []


def program_of(fault: Fault) -> Program:
    torch.manual_seed(3)
    function = PROGRAMS[fault.program]()

    def calls():
        torch.manual_seed(0)
        shape = (2, 4, 8) if fault.program == "block" else (4, 8)
        return [((torch.randn(shape, requires_grad=fault.train),), {})]

    return Program(fault.program, function, calls)


def test_there_are_faults_in_every_pass():
    stages = [stage.name for stage in intarsia.default_pipeline().stages]
    assert len(FAULTS) == 41 and {fault.stage for fault in FAULTS} == {*stages} - {"build"}


def test_what_is_right_has_no_culprit():
    assert bisected(program_of(FAULTS[0])) is None


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_planted_fault_is_found(fault: Fault, tmp_path):
    pipeline = planted(intarsia.default_pipeline(), fault)
    found = bisected(program_of(fault), pipeline, train=fault.train)
    assert found is not None, "the fault has no effect on the program"
    if (found.culprit.stage, found.culprit.fuel) == (fault.stage, fault.at):
        named.append(str(fault))
    shows_the_fault(found, fault, pipeline, tmp_path)


def shows_the_fault(found: Found, fault: Fault, pipeline, tmp_path) -> None:
    """The reproducer, read as a script of its own, is right without the fault and goes wrong with it."""
    assert found.case is not None and operations(found.case.graph_module) <= MOST_OPERATIONS
    script = tmp_path / f"reproducer_{abs(hash(str(fault)))}.py"
    script.write_text(found.script)
    alone = load(f"{script}::program")
    train = found.case.train
    assert bisected(alone, pipeline, train=train) is not None, found.script
    assert bisected(alone, train=train) is None, found.script


def test_most_are_named_rightly():
    """Runs after the faults."""
    print(f"{len(named)} of {len(FAULTS)} named rightly")
    assert len(named) >= LEAST, [str(fault) for fault in FAULTS if str(fault) not in named]
