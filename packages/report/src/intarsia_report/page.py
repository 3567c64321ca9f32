"""The page: one file that opens offline. Here an explanation becomes what the template shows; nothing is decided.

Everything of the user's (names, lines, reasons) is escaped where it enters; only `Markup` made here isn't again.
Its scripts may run because the page names their digests, and nothing may be loaded.
"""

from __future__ import annotations

import functools
import linecache
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from intarsia_dispatch import EventKind, FrameEvent, describe_guard
from intarsia_fuser import FusionPlan, LogEntry, PlanPrices
from intarsia_ir.records import Origin
from intarsia_loops.kernels import KernelSummary
from intarsia_report.explanation import Explanation, GraphSummary, KernelDetail, StageRecord
from intarsia_report.frame_source import frame_source
from intarsia_report.libraries import digest_of, libraries, own_scripts
from intarsia_report.programs import Lines, Places, compared
from intarsia_report.source_lines import files_of
from intarsia_report.timeline import bars_of
from intarsia_scheduler import SchedulePlan
from intarsia_shapes import describe_facts

__all__ = ["page"]

LineOf = Callable[[str, int], str]
BUDGET = 6_000_000  # characters of programs in a page; what is beyond is said to be left out


def page(
    explanation: Explanation,
    *,
    title: str = "",
    line_of: LineOf = linecache.getline,
    budget: int = BUDGET,
) -> str:
    """Return the page of an explanation.

    Args:
        explanation: Of a call, or of several.
        title: What was explained; the functions that were compiled when not given.
        line_of: `(file, line)` -> the user's line, "" where it isn't there.
        budget: Characters of programs that are shown; each program gets an equal share.

    Returns:
        HTML, one file: its style, its scripts and the libraries that they use are in it, and it loads nothing.
    """
    places = Places()
    share = _share(explanation, budget)
    graphs = [_graph(n, graph, places, share, line_of) for n, graph in enumerate(explanation.graphs)]
    frames = [_frame(n, event, places) for n, event in enumerate(_told(explanation.frames))]
    text = _environment().from_string(_file("page.html")).render(
        title=title or _title(explanation),
        explanation=explanation,
        graphs=graphs,
        frames=frames,
        bars=bars_of(explanation),
        # last: what links to a line has said so
        files=files_of(places, _kernels_by_line(graphs), line_of),
        style=Markup(_file("page.css")),
        libraries=libraries(),
        scripts=[(Markup(s), digest_of(s)) for s in (*(x.script for x in libraries()), *own_scripts())],
    )  # fmt: skip
    return text.encode("utf-8", "backslashreplace").decode("utf-8")  # a name may have half a character


# ---- what the template is given ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A launch, and everything about it that is shown."""

    id: str
    summary: KernelSummary
    detail: KernelDetail | None
    lines: tuple[tuple[Markup, str], ...]
    colour: int
    same_as: str = ""
    cost: str = ""


@dataclass(frozen=True, slots=True)
class _Decision:
    """A line of the log of a fusion plan, and what the decision saved by the cost model."""

    entry: LogEntry
    saved_us: float | None


@dataclass(frozen=True, slots=True)
class _Fusion:
    """A fusion plan."""

    program: str
    plan: FusionPlan
    predicted: tuple[float, float, str]
    decisions: tuple[_Decision, ...]


@dataclass(frozen=True, slots=True)
class _Stage:
    """A stage, and the programs that it gave."""

    id: str
    record: StageRecord
    programs: tuple[tuple[str, str, Lines], ...]
    before: str
    unchanged_since: str
    plans: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Moment:
    """What a call holds at one of its launches and library calls."""

    makes: tuple[str, ...]
    kind: str
    kernel: _Kernel | None
    n_bytes: int
    width: float


@dataclass(frozen=True, slots=True)
class _Graph:
    """A graph."""

    id: str
    number: int
    name: str
    summary: GraphSummary
    kernels: tuple[_Kernel, ...]
    fusions: tuple[_Fusion, ...]
    schedules: tuple[tuple[str, str], ...]
    stages: tuple[_Stage, ...]
    drawn: tuple[tuple[str, str], ...]
    facts: tuple[str, ...]
    memory: tuple[tuple[str, int, tuple[_Moment, ...]], ...]


@dataclass(frozen=True, slots=True)
class _Frame:
    """What became of a frame."""

    id: str
    event: FrameEvent
    name: str
    place: Markup
    said: str
    breaks: tuple[tuple[Any, Markup], ...] = ()
    guards: tuple[tuple[str, Markup, str], ...] = field(default=())
    source: str = ""


def _graph(number: int, graph: GraphSummary, places: Places, share: int, line_of: LineOf) -> _Graph:
    prefix = f"g{number}"
    kernels = tuple(_kernels(prefix, graph, places, line_of))
    stages = tuple(_stages(prefix, graph, places, _colours(kernels), share))
    return _Graph(
        prefix,
        number,
        graph.name,
        graph,
        kernels,
        tuple(_fusions(graph)),
        tuple((_program_name(n), plan.explain()) for n, plan in enumerate(graph.schedules)),
        stages,
        _with_kernels(stages),
        tuple(describe_facts(graph.facts)),
        tuple(_memory(graph, kernels)),
    )


def _colours(kernels: Sequence[_Kernel]) -> dict[tuple[int, str], int]:
    """Program and name -> number of the kernel that makes it."""
    return {(k.detail.program, name): k.colour for k in kernels if k.detail for name in k.detail.buffers}


def _with_kernels(stages: Sequence[_Stage]) -> tuple[tuple[str, str], ...]:
    """Id and name of each program whose operations have become kernels, as the last pass that changed it left it."""
    fused = [s for s in stages if s.record.level in ("Kernels", "Launched") and s.programs]
    return tuple((name, text) for name, text, _ in fused[-1].programs) if fused else ()


def _kernels(prefix: str, graph: GraphSummary, places: Places, line_of: LineOf) -> Iterator[_Kernel]:
    seen: dict[str, str] = {}
    for number, summary in enumerate(graph.kernels):
        detail = graph.details[number] if number < len(graph.details) else None
        name = f"{prefix}-k{number}"
        origins = {(o.file, o.line): o for o in summary.origins if o.line}
        lines = tuple((places.link(o), line_of(o.file, o.line).strip()) for o in origins.values())
        first = seen.setdefault(detail.source, name) if detail is not None else name
        yield _Kernel(name, summary, detail, lines, number, "" if first == name else first, _cost(summary, detail))


def _cost(summary: KernelSummary, detail: KernelDetail | None) -> str:
    moved = ((summary.bytes_read, "read"), (summary.bytes_written, "written"), (summary.bytes_saved, "saved"))
    known = [f"{n / 1024:,.1f} KB {what}" for n, what in moved]
    us = detail.predicted_us if detail is not None else None
    return ", ".join(known if us is None else [*known, f"{us:.2f} µs predicted"])


def _fusions(graph: GraphSummary) -> Iterator[_Fusion]:
    prices = next((s.prices for s in reversed(graph.stages) if s.prices), ())
    for number, plan in enumerate(graph.plans):
        known = prices[number] if number < len(prices) else None
        by_plan = (plan.before.predicted_us, plan.after.predicted_us, plan.cost)
        predicted = by_plan if known is None else (known.before_us, known.after_us, known.cost)
        yield _Fusion(_program_name(number), plan, predicted, tuple(_decisions(plan, known)))


def _decisions(plan: FusionPlan, prices: PlanPrices | None) -> Iterator[_Decision]:
    """The log; its accepted entries are the plan's decisions, in order."""
    saved = iter([p.saved_us for p in prices.decisions] if prices is not None else [])
    for entry in plan.log:
        yield _Decision(entry, next(saved, None) if entry.verdict == "accepted" else None)


def _memory(graph: GraphSummary, kernels: Sequence[_Kernel]) -> Iterator[tuple[str, int, tuple[_Moment, ...]]]:
    """The program, its peak in bytes, and a bar for each step of what a call holds."""
    known = {(k.detail.program, name): k for k in kernels if k.detail for name in k.summary.writes}
    for number, steps in enumerate(graph.memory):
        peak = max((step.n_bytes for step in steps), default=0)
        yield (
            _program_name(number),
            peak,
            tuple(
                _Moment(
                    step.makes,
                    "library call" if step.is_call else "launch",
                    next((known[number, name] for name in step.makes if (number, name) in known), None),
                    step.n_bytes,
                    100 * step.n_bytes / (peak or 1),
                )
                for step in steps
            ),
        )


def _stages(
    prefix: str, graph: GraphSummary, places: Places, colours: dict[tuple[int, str], int], share: int
) -> Iterator[_Stage]:
    last = f"{prefix}-captured"
    if graph.stages:
        first = graph.stages[0]
        start = StageRecord("captured", first.start, 0.0, "Captured", (), first.before)
        yield _Stage(last, start, _programs(last, start, places, {}, share), "", "", ())
    for number, record in enumerate(graph.stages):
        name = f"{prefix}-s{number}"
        known = colours if record.level in _WITH_KERNELS else {}
        same = record.before == record.after
        programs = () if same else _programs(name, record, places, known, share)
        yield _Stage(name, record, programs, last, last if same else "", tuple(_other_plans(record)))
        last = last if same else name


# below these, names are those of buffers that kernels make
_WITH_KERNELS = ("Loops", "Kernels", "Launched", "Emitted")


def _programs(
    prefix: str, record: StageRecord, places: Places, colours: dict[tuple[int, str], int], share: int
) -> tuple[tuple[str, str, Lines], ...]:
    paired = len(record.before) == len(record.after)
    found = []
    for number, text in enumerate(record.after):
        before, name = record.before[number] if paired else "", f"{prefix}-p{number}"
        mine = {key[1]: colour for key, colour in colours.items() if key[0] == number}
        found.append((name, _program_name(number), compared(before, text, name, places, mine, share)))
    return tuple(found)


def _other_plans(record: StageRecord) -> Iterator[str]:
    """The plans that have no table of their own, as they tell of themselves."""
    for plan in record.plans:
        if not isinstance(plan, FusionPlan | SchedulePlan):
            yield plan.to_json() if hasattr(plan, "to_json") else repr(plan)


def _program_name(number: int) -> str:
    return "graph" if number == 0 else "backward graph" if number == 1 else f"backward graph {number}"


def _told(events: Sequence[FrameEvent]) -> list[FrameEvent]:
    return [e for e in events if e.kind is not EventKind.NATIVE or e.in_eager]


def _frame(number: int, event: FrameEvent, places: Places) -> _Frame:
    capture = event.capture
    graph = capture is not None and capture.graph_module is not None
    said = {
        EventKind.COMPILED: "is compiled" if graph else "is replaced, with nothing to compile before its break",
        EventKind.RECOMPILED: "is compiled again",
        EventKind.FAULT: "faulted, and ran again in eager",
    }.get(event.kind, "runs in eager")
    breaks = [(b, _link(b.origin, places)) for b in (capture.breaks if capture is not None else ())]
    guards = [
        (describe_guard(g), _link(g.origin, places), g.reason) for g in (capture.guards if capture is not None else ())
    ]
    place = places.link(event.origin)
    return _Frame(f"f{number}", event, event.name, place, said, tuple(breaks), tuple(guards), frame_source(event))


def _link(origin: Origin | None, places: Places) -> Markup:
    return places.link(origin) if origin is not None else Markup("")


def _kernels_by_line(graphs: Sequence[_Graph]) -> dict[tuple[str, int], list[tuple[str, str, int]]]:
    """User line -> id, label and colour of each kernel that has something of it."""
    found: dict[tuple[str, int], list[tuple[str, str, int]]] = {}
    for graph in graphs:
        for number, kernel in enumerate(graph.kernels):
            for key in {(o.file, o.line): None for o in kernel.summary.origins if o.line}:
                found.setdefault(key, []).append((kernel.id, f"{graph.number}.{number}", kernel.colour))
    return found


def _title(explanation: Explanation) -> str:
    told = [e.name for e in _told(explanation.frames)] or [g.name for g in explanation.graphs]
    names = dict.fromkeys(name.partition(" (after the break")[0] for name in told)
    return ", ".join(filter(None, names)) or "nothing was compiled"


def _share(explanation: Explanation, budget: int) -> int:
    """How many characters of each program are shown."""
    n = sum(len(s.after) for g in explanation.graphs for s in g.stages if s.after != s.before)
    return budget // max(n + len(explanation.graphs), 1)


def _file(name: str) -> str:
    return (resources.files("intarsia_report") / "templates" / name).read_text(encoding="utf-8")


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["kb"] = lambda n: f"{n / 1024:,.1f}"
    return environment
