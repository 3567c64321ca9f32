"""An explanation made by hand, as a pipeline would make it: texts of programs in, stages watched."""

from __future__ import annotations

from types import SimpleNamespace

from intarsia_dispatch import DispatchStats, EventKind, FrameEvent
from intarsia_fuser import apply, plan
from intarsia_ir.guards import ConstantGuard
from intarsia_ir.records import (
    ArgumentSource,
    Capture,
    GraphBreak,
    LinkableCode,
    Origin,
    Signature,
)
from intarsia_loops import kernels
from intarsia_loops.kernels import summarise
from intarsia_loops.level_text import parse_value
from intarsia_loops.levels import Emitted, Kernels, Launched
from intarsia_report import Explanation, GraphSummary, Watching
from intarsia_scheduler import scheduled

LOOPS = """// level: Loops 2
device device('cpu')
target Target(isa='avx2', threads=2)
input('x', source=source('x'))
output Fresh(0)
// dialect: loops 2
graph(%x: f32[8, 64]) {
  # FILE:3 in f
  %double: f32[8, 64] = map[i0: 8, i1: 64] mul(load(%x, i0, i1), f32(2.0))  #3 mul
  # FILE:4 in RESUMED
  %top: f32[8] = max[i0: 8; r0: 64] load(%double, i0, r0)  #4 amax
  # FILE:5 in RESUMED
  %shifted: f32[8, 64] = map[i0: 8, i1: 64] sub(load(%double, i0, i1), load(%top, i0))  #5 sub
  return (%shifted,)
}
origins
  1 FILE
    f: 3
    RESUMED: 4, 5
"""


def explained(file: str = "/home-made/model.py", name: str = "f", emit=None) -> Explanation:
    """Return the explanation of a graph of three operations, with a frame that broke and one that is eager."""
    watching = Watching()
    watch = watching.graph()
    text = LOOPS.replace("  1 FILE", f"  1 {file!r}").replace("    RESUMED", "    'f (after the break in line 3)'")
    loops = parse_value(text)
    made = plan(loops.graph_module, target=loops.contract.target)
    fused = Kernels(apply(loops.graph_module, made), loops.contract)
    watch.note("fuse", 0.25, loops, fused, (made,))
    watch.note("again", 0.0, fused, fused, ())
    done = scheduled(fused.graph_module, loops.contract.target)
    launched = Launched(fused.graph_module, loops.contract, done.launches)
    watch.note("schedule", 0.125, fused, launched, (done.plan,))
    if emit is not None:
        emitted = Emitted(fused.graph_module, loops.contract, done.launches, emit(done.launches))
        watch.note("emit", 0.5, launched, emitted, ())
    watch.note("build", 1.0, launched, object(), ())
    seconds = {stage.name: stage.seconds for stage in watch.stages}
    kinds = summarise(done.launches), (), 1, 2, seconds
    graph = GraphSummary(
        *kinds,
        plans=(made,),
        schedules=(done.plan,),
        name=name,
        stages=tuple(watch.stages),
        details=watch.details,
        memory=watch.memory,
    )
    watching.graphs.append(graph)
    watching.frames.extend(_events(file, name))
    watching.timed("capture", lambda code: None)(SimpleNamespace(co_qualname=name))
    return watching.explanation(DispatchStats(graphs=1), None)


def _events(file: str, name: str) -> list[FrameEvent]:
    at = Origin(file, 3, name)
    broken = GraphBreak("tracer.output", f"{name} prints", at, "print after it")
    guard = ConstantGuard(ArgumentSource("flag"), name, origin=at, reason="branch on a flag")
    graph = kernels.parse_ir("// dialect: kernels 2\ngraph(%x: f32[2]) {\n  return (%x,)\n}\n")
    capture = Capture(graph, Signature(), (), (guard,), LinkableCode(explained.__code__), (broken,))
    return [
        FrameEvent(EventKind.COMPILED, name, at, "", capture),
        FrameEvent(EventKind.RECOMPILED, name, at, "guard failed (line 3): flag == 1 was 2\nremedy: hoist it", capture),
        FrameEvent(EventKind.FAILED, name, at, f"{name} can't be compiled"),
    ]
