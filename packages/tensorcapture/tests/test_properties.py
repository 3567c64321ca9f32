"""Random programs over tensors and containers behave by their captures as in eager."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, given, settings
from outcome import outcome
from programs import programs
from tensor_executor import Executor

SETTINGS = settings(
    derandomize=True, deadline=None, database=None, max_examples=60, suppress_health_check=list(HealthCheck)
)


def test_programs_with_tensors():
    seen = Counter()

    @SETTINGS
    @given(programs(tensors=True))
    def run(source):
        executor = Executor()
        got = outcome(source, executor.call, tensors=True)
        assert got == outcome(source, lambda f, *args: f(*args), tensors=True)
        for capture in executor.captures:
            seen["frames"] += 1
            seen["graphs"] += capture.graph_module is not None
            if capture.graph_module is not None:
                seen["calls"] += sum(node.op.startswith("call_") for node in capture.graph_module.graph.nodes)
            for broken in capture.breaks:
                seen[broken.code] += 1

    run()
    print(dict(seen))
    assert seen["graphs"] > 10


def test_the_argument_frames_are_not_changed_by_capturing():
    """Capturing alone has no effect that the program could see."""
    import intarsia_tensorcapture

    @settings(SETTINGS, max_examples=30)
    @given(programs(tensors=True))
    def run(source):
        def capture_only(f, *args):
            before = repr(args)
            intarsia_tensorcapture.capture(f, args)
            assert repr(args) == before
            return f(*args)

        assert outcome(source, capture_only, tensors=True) == outcome(source, lambda f, *a: f(*a), tensors=True)

    run()
