"""From captured frames to compiled ones: the composition of tracer, graph compiler, guards and dispatch."""

from __future__ import annotations

import functools
import logging
from types import CodeType
from typing import TYPE_CHECKING

import intarsia_bytecode
import intarsia_guards
import intarsia_pyeval
import intarsia_runtime
import intarsia_tensorcapture
from intarsia._backends import GraphCompiler
from intarsia._options import Options
from intarsia._session import COMPILE_LOCK, COUNTERS, DISPATCHERS
from intarsia_dispatch import CompiledGraph, DispatchConfig, Dispatcher, ErrorPolicy, EventKind, FrameEvent, FrameGuard
from intarsia_dispatch.skipping import left_alone, library_code
from intarsia_fuser import FusionPlan
from intarsia_guards.changes import changed
from intarsia_guards.weights import Weights
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.records import Capture, GuardKind
from intarsia_ir.torch import communicates
from intarsia_report import Watching, summarise
from intarsia_runtime.report import GraphReport
from intarsia_shapes import facts_behind, join_facts

if TYPE_CHECKING:
    from intarsia_framehook import FrameInfo

__all__ = ["make_dispatcher"]

log = logging.getLogger("intarsia.frames")
_NAMES = "ir shapes recorder framehook bytecode pyeval tensorcapture guards functionalizer rewrites autodiff loops"
_PACKAGES = (
    "intarsia",
    *(f"intarsia_{name}" for name in f"{_NAMES} fuser cpp triton runtime dispatch report tuner export".split()),
)


def make_dispatcher(
    compile_one: GraphCompiler,
    options: Options,
    policy: ErrorPolicy,
    *,
    dynamic: bool | None = None,
    watching: Watching | None = None,
) -> Dispatcher:
    """Return a dispatcher that captures with our tracer and compiles graphs with `compile_one`.

    Args:
        compile_one: Compiles one FX(torch) graph.
        options: See `Options`.
        policy: What becomes of a frame that can't be compiled.
        dynamic: See `compile`.
        watching: Told what happens to each frame and graph, where somebody wants to know.
    """

    plans: list[FusionPlan] = []
    weights = Weights()

    def compile_graph(capture: Capture, frame: FrameInfo) -> CompiledGraph:
        report = GraphReport(watch=watching.graph() if watching is not None else None)
        if options.freezing:
            code, values = frame.function.__code__, (frame.locals, frame.globals)
            report.weights = weights.of(code, capture.signature, *values, report.refuse)
        run = compile_one(left_alone(capture.graph_module), capture.example_inputs, capture.signature, report)
        # the environment is open until here: what any stage or backend asked of it is guarded
        plans.extend(report.plans_of(FusionPlan))
        # with what the passes asked behind a finished plan
        report.facts = join_facts(capture.facts, facts_behind(capture.example_inputs, close=True), report.facts)
        if watching is not None:
            watching.graphs.append(summarise(report))
        raises = intarsia_runtime.raises_as_written(capture.graph_module)
        exchanges = communicates(capture.graph_module)
        return CompiledGraph(run, report.guards, report.facts, report.draws_random, raises, exchanges)

    def tell(event: FrameEvent) -> None:
        # what a user must know is a warning or an error already; this is for those who ask
        log.log(logging.DEBUG if event.kind is EventKind.NATIVE else logging.INFO, "%s", event)
        if watching is not None:
            watching.frame(event)

    timed = watching.timed if watching is not None else lambda name, function: function
    dispatcher = Dispatcher(
        DispatchConfig(
            capture=timed("capture", intarsia_tensorcapture.capture_frame),
            compile_graph=compile_graph,
            build_guards=timed("guards", _build_guards),
            link=intarsia_pyeval.link,
            raise_inside=intarsia_bytecode.raise_inside,
            skip_code=library_code(_PACKAGES),
            policy=policy,
            dynamic=dynamic,
            recompile_limit=options.recompile_limit,
            lock=COMPILE_LOCK,
            on_event=tell,
            count=COUNTERS.add,
        )
    )
    DISPATCHERS[dispatcher] = plans
    return dispatcher


def _build_guards(code: CodeType, frame: FrameInfo, capture: Capture, graph: CompiledGraph | None) -> FrameGuard:
    records = (*capture.guards, *(graph.guards if graph else ()))
    facts = graph.facts if graph and graph.facts is not None else capture.facts
    guards = intarsia_guards.build_guards(records, facts)
    check, wants_globals = guards.frame_check(code)
    if (failure := guards.frame_failure(frame.locals, frame.globals)) and failure.kind is GuardKind.OVERLAP:
        raise UnsupportedError(
            f"{failure.source} is written and shares memory with another input",
            code="functionalize.overlap",
            where=(failure.origin,) if failure.origin else (),
            hints=(failure.remedy,),
        )
    return FrameGuard(check, guards.explain_frame, wants_globals, functools.partial(changed, guards))
