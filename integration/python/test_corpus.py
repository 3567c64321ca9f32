"""Every program of the corpus by our compiler: what it returns, changes, prints and raises, and in how many pieces."""

from __future__ import annotations

import os
from collections import Counter

import pytest
import torch

import intarsia
from integration.python.items import ITEMS
from integration.python.programs import PROGRAMS
from integration.python.run import check, run

# a frame of torch's, or one that it made of text, that is captured by itself
LIBRARY = (os.path.dirname(torch.__file__), "<eval_with_key>")
RAISE = {"on_error": "raise"}
# every pass runs, and the kernels are interpreted: what is tested here is capture, and a C++ compiler takes its time
INTERPRETED = "kernels"


@pytest.fixture(autouse=True)
def _fresh():
    intarsia.reset()
    yield
    intarsia.reset()


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    program = PROGRAMS[name]
    seen: list[intarsia.Stats] = []

    def compiled(subject):
        fast = intarsia.compile(subject, backend=INTERPRETED, fullgraph=not program.breaks, options=RAISE)

        def call(*args, **kwargs):
            try:
                return fast(*args, **kwargs)
            finally:
                seen.append(intarsia.stats())

        return call

    if program.refused:
        with pytest.raises(intarsia.UnsupportedError) as caught:
            intarsia.compile(program.make(), backend=INTERPRETED, options=RAISE)(*program.inputs())
        assert program.refused in str(caught.value)
        return
    check(run(program, compiled), run(program))
    first, last = seen[0], seen[-1]
    assert (first.graphs, first.recompiles, first.fallbacks) == (program.graphs, 0, 0)
    assert (last.recompiles, last.fallbacks) == (program.recompiles, 0)
    assert program.recompiles or last.frames_compiled == first.frames_compiled
    assert not program.recompiles or program.calls > 2  # the change is seen to cost no more than once


@pytest.mark.parametrize("name", [name for name, program in PROGRAMS.items() if program.breaks])
def test_breaks_are_explained(name):
    program, explained = PROGRAMS[name], []

    def explain(subject):
        return lambda *args, **kwargs: explained.append(
            intarsia.explain(subject, backend=INTERPRETED, options=RAISE)(*args, **kwargs)
        )

    run(program, explain, calls=1)
    breaks = explained[0].breaks
    assert tuple(b.code for b in breaks) == program.breaks
    for b in breaks:
        assert b.reason and b.remedy
        assert b.origin is not None
        assert b.origin.file == program.file or b.origin.file.startswith(LIBRARY)


def test_every_item_has_programs():
    counts = Counter(program.item for program in PROGRAMS.values())
    items = [item for items in ITEMS.values() for item in items]
    assert len(items) == len(set(items))
    assert {item: counts[item] for item in items if counts[item] < 2} == {}
    assert len(PROGRAMS) >= 150
