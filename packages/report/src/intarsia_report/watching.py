"""Collecting, while calls are compiled, what an explanation holds: texts and prices are made here, and kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter, time
from typing import Any, TypeVar

from intarsia_dispatch import FrameEvent
from intarsia_fuser import CostModel, FusionPlan, PlanPrices, price
from intarsia_ir import codes
from intarsia_ir.errors import InvalidArgumentError, UnsupportedError
from intarsia_ir.records import Target
from intarsia_ir.values import Partition
from intarsia_loops.launches import LaunchPlan
from intarsia_loops.level_text import LEVELS, print_value
from intarsia_loops.levels import Buildable, Emitted, Loops
from intarsia_report.explanation import Explanation, GraphSummary, KernelDetail, Span, StageRecord
from intarsia_report.kernel_text import all_kernel_texts, kernel_texts
from intarsia_scheduler import Held, held

__all__ = ["Cost", "GraphWatch", "Watching"]

R = TypeVar("R")
Cost = CostModel | Callable[[Target], CostModel]
_WITH_TEXT = tuple(row.level for row in LEVELS.values())


class Watching:
    """Collects what happens while calls are compiled.

    Args:
        cost: The cost model that predicts, or what makes one of a target; None is the roofline of the target.
    """

    def __init__(self, cost: Cost | None = None) -> None:
        self.graphs: list[GraphSummary] = []
        self.frames: list[FrameEvent] = []
        self.spans: list[Span] = []
        self._cost = cost

    def graph(self) -> GraphWatch:
        """Return what collects the stages of one graph."""
        return GraphWatch(self._cost)

    def timed(self, name: str, function: Callable[..., R]) -> Callable[..., R]:
        """Return a function over a code object and more that notes when it ran and for how long, as `name`."""

        def call(code: Any, *args: Any, **kwargs: Any) -> R:
            start, clock = time(), perf_counter()
            try:
                return function(code, *args, **kwargs)
            finally:
                self.spans.append(Span(name, code.co_qualname, start, perf_counter() - clock))

        return call

    def frame(self, event: FrameEvent) -> None:
        """Keep what became of a frame."""
        self.frames.append(event)

    def explanation(self, stats: Any, result: Any) -> Explanation:
        """Return what was collected since the last time."""
        made = Explanation(tuple(self.graphs), tuple(self.frames), stats, result, tuple(self.spans))
        self.forget()
        return made

    def forget(self) -> None:
        """Drop what was collected."""
        for kept in (self.graphs, self.frames, self.spans):
            kept.clear()


class GraphWatch:
    """Collects the stages of one graph.

    Args:
        cost: As for `Watching`.
    """

    def __init__(self, cost: Cost | None = None) -> None:
        self.stages: list[StageRecord] = []
        self.details: tuple[KernelDetail, ...] = ()
        self.memory: tuple[tuple[Held, ...], ...] = ()
        self._cost = cost

    def note(self, name: str, seconds: float, before: Any, after: Any, plans: tuple[Any, ...]) -> None:
        """Keep what a stage, which has just ended, made of a program.

        Args:
            name: Of the stage, or `"warm start"`: a finished plan was found, which is what all of them give.
            seconds: How long it took.
            before: The value, or partition of values, that it took.
            after: The one that it gave.
            plans: What it decided.
        """
        start = time() - seconds
        texts = self.stages[-1].after if self.stages else _texts(before)
        prices = self._prices(before, plans)
        # a text that didn't change is kept once
        made = tuple(text if text not in texts else texts[texts.index(text)] for text in _texts(after))
        level = type(_graphs(after)[0]).__name__
        self.stages.append(StageRecord(name, start, seconds, level, texts, made, plans, prices))
        if all(isinstance(graph, Emitted) for graph in _graphs(after)):
            known = next((s.prices for s in reversed(self.stages) if s.prices), ())
            self.details = tuple(_details(_graphs(after), known))
            self.memory = tuple(held(graph.launches) for graph in _graphs(after))
        elif all(isinstance(graph, Buildable) for graph in _graphs(after)):
            self.details = tuple(_details_of_finished(_graphs(after)))

    def _prices(self, before: Any, plans: tuple[Any, ...]) -> tuple[PlanPrices, ...]:
        """What fusion plans cost; nothing for other plans, or where a stage of the user's gave another program's."""
        pairs = [
            (graph, plan)
            for graph, plan in zip(_graphs(before), plans, strict=False)
            if isinstance(graph, Loops) and isinstance(plan, FusionPlan)
        ]
        try:
            return tuple(self._priced(graph, plan) for graph, plan in pairs)
        except InvalidArgumentError as error:
            if error.code != codes.OTHER_PROGRAM:
                raise
            return ()

    def _priced(self, graph: Loops, plan: FusionPlan) -> PlanPrices:
        target = graph.contract.target
        cost = self._cost(target) if callable(self._cost) else self._cost
        return price(graph.graph_module, plan, target=target, cost=cost)


def _graphs(value: Any) -> tuple[Any, ...]:
    return value.graphs if isinstance(value, Partition) else (value,)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(_text(graph) for graph in _graphs(value) if isinstance(graph, _WITH_TEXT))


def _text(graph: Any) -> str:
    try:
        return print_value(graph)
    except UnsupportedError as error:  # an object of the user's in it: compiling goes on, the reader is told
        return f"// no text: {error.explanation}\n"


def _details(graphs: Sequence[Emitted], prices: Sequence[PlanPrices]) -> list[KernelDetail]:
    found = []
    for number, graph in enumerate(graphs):
        launches = graph.launches.launches
        sources = kernel_texts(graph.source, len(launches))
        known = _predicted(launches, prices[number]) if number < len(prices) else [None] * len(launches)
        for launch, source, us in zip(launches, sources, known, strict=True):
            found.append(KernelDetail(number, _made_by(launch), us, source, graph.source.language))
    return found


def _details_of_finished(graphs: Sequence[Buildable]) -> Iterator[KernelDetail]:
    """The source of each launch of finished plans, which say no more of it."""
    for number, graph in enumerate(graphs):
        for source in all_kernel_texts(graph.source):
            yield KernelDetail(number, (), None, source, graph.source.language)


def _predicted(launches: Sequence[LaunchPlan], prices: PlanPrices) -> list[float | None]:
    """The microseconds of each launch: those of the planned kernels of which it is the first to make something."""
    left = list(prices.kernels)
    found: list[float | None] = []
    for launch in launches:
        made = set(_made_by(launch))
        mine = [kernel for kernel in left if made.intersection(kernel.steps)]
        left = [kernel for kernel in left if kernel not in mine]
        found.append(sum(kernel.us for kernel in mine))
    return found


def _made_by(launch: LaunchPlan) -> tuple[str, ...]:
    """The real names of what a launch computes, stored or not."""
    kernels = [launch.kernel, *([launch.finish.kernel] if launch.finish is not None else [])]
    numbers = [int(step.out[1:]) for kernel in kernels for step in kernel.steps]
    return tuple(dict.fromkeys(names[n] for names in launch.sets for n in numbers))
