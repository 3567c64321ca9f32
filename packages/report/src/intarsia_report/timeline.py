"""The time that compiling took, as bars: one for each capture, building of guards, and stage of a graph."""

from __future__ import annotations

from dataclasses import dataclass

from intarsia_report.explanation import Explanation, Span

__all__ = ["Bar", "bars_of"]


@dataclass(frozen=True, slots=True)
class Bar:
    """One piece of work.

    Args:
        span: Which.
        link: Id of what it made, or "".
        left: Where it starts, in percent of all.
        width: How long it took, in percent of all.
    """

    span: Span
    link: str
    left: float
    width: float


def bars_of(explanation: Explanation) -> tuple[Bar, ...]:
    """Return the bars in order of their start; time in which nothing was compiled is left out."""
    spans = [(span, "") for span in explanation.spans]
    for number, graph in enumerate(explanation.graphs):
        about = f"graph {number} of {graph.name}" if graph.name else f"graph {number}"
        spans += [(Span(s.name, about, s.start, s.seconds), f"g{number}-s{k}") for k, s in enumerate(graph.stages)]
    spans.sort(key=lambda pair: pair[0].start)
    starts, at, end = list[float](), 0.0, 0.0
    for span, _ in spans:
        # what overlaps the one before starts within it; a gap is closed
        start = max(at - max(end - span.start, 0.0), 0.0)
        starts.append(start)
        at, end = max(at, start + span.seconds), max(end, span.start + span.seconds)
    total = max((s + span.seconds for s, (span, _) in zip(starts, spans, strict=True)), default=0.0) or 1.0
    return tuple(
        Bar(span, link, 100 * start / total, 100 * span.seconds / total)
        for start, (span, link) in zip(starts, spans, strict=True)
    )
