"""What happened when a call was compiled: as a value, as text, as one page that opens offline, as a trace.

`Explanation` holds it, frozen; `Watching` collects it while a pipeline runs; `page` and `trace` are functions from the
value to text. No dialect in or out: it reads values of every level and prints them.

Example:
    >>> from intarsia_report import Explanation, page
    >>> from intarsia_dispatch import DispatchStats
    >>> nothing = Explanation((), (), DispatchStats())
    >>> page(nothing, title="<nothing>").startswith("<!doctype html>")
    True
    >>> "&lt;nothing&gt;" in page(nothing, title="<nothing>")
    True
"""

from intarsia_report.exchanges import Collective, collectives_of
from intarsia_report.explanation import Explanation, GraphSummary, KernelDetail, Span, StageRecord, joined
from intarsia_report.page import page
from intarsia_report.summary import summarise
from intarsia_report.trace import trace
from intarsia_report.tracing import traced_in
from intarsia_report.watching import GraphWatch, Watching

__version__ = "0.1.1"

__all__ = [
    "Collective",
    "Explanation",
    "GraphSummary",
    "GraphWatch",
    "KernelDetail",
    "Span",
    "StageRecord",
    "Watching",
    "collectives_of",
    "joined",
    "page",
    "summarise",
    "trace",
    "traced_in",
]
