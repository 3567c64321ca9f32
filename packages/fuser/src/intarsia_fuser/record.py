"""The plan: fusion decisions as data that replays, carries over to other sizes, and is a policy itself."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from intarsia_fuser.decisions import (
    Decision,
    Declined,
    Fuse,
    Inline,
    decision_from_data,
    decision_to_data,
    names_in,
    renamed,
)
from intarsia_fuser.graph import FusionGraph
from intarsia_ir.errors import InvalidArgumentError
from intarsia_loops.program import Refused

__all__ = ["FusionPlan", "LogEntry", "PlanDiff", "Summary", "planned"]

SCHEMA = 2


@dataclass(frozen=True, slots=True)
class LogEntry:
    """What became of one proposal.

    Args:
        verdict: `"accepted"`, `"refused"` (illegal) or `"declined"` (the policy's own choice).
        kind: `"inline"`, `"vertical"`, `"horizontal"`, `"order"`, or `"pair"` for what was declined.
        first: Producer, or first kernel.
        second: Consumer, or second kernel.
        saved: Bytes that no longer move; 0 when nothing was done.
        code: Code of the refusal; "" when accepted.
        why: One sentence.
    """

    verdict: str
    kind: str
    first: str
    second: str
    saved: int = 0
    code: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """Totals over a program's kernels.

    Args:
        kernels: Number of kernels.
        externs: Number of extern calls.
        bytes_moved: Bytes read and written by the kernels.
        predicted_us: The cost model's time for all kernels.
    """

    kernels: int
    externs: int
    bytes_moved: int
    predicted_us: float


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """Decisions that only one of two plans has, in the order in which they were taken."""

    only_first: tuple[Decision, ...]
    only_second: tuple[Decision, ...]

    def __bool__(self) -> bool:
        return bool(self.only_first or self.only_second)


@dataclass(frozen=True, slots=True)
class FusionPlan:
    """Which nests become one kernel, as data that replays.

    A plan is a policy: given to `plan`, or wherever a policy is taken, it decides what it holds. For its own program,
    exactly that. For another, its decisions are carried over by the structure of what they name: the same
    model at another size, or another model with layers like it. What has no counterpart there is declined, what isn't
    legal there is refused, and the log of the new plan says both.

    Args:
        graph: Fingerprint of the loops program that it was made for.
        policy: `"name version"` of what decided.
        decisions: In the order in which they were accepted.
        before: Totals with every nest a kernel of its own.
        after: Totals once the decisions are carried out.
        cost: Name of the cost model behind the predicted times.
        names: What the decisions name -> its key, which `FusionGraph.structure` gives in programs of other sizes.
        log: Every accepted decision, and refused and declined ones up to a limit.
        log_dropped: Number of entries beyond that limit.
    """

    graph: str
    policy: str
    decisions: tuple[Decision, ...]
    before: Summary = field(compare=False)
    after: Summary = field(compare=False)
    cost: str = field(default="", compare=False)
    names: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    log: tuple[LogEntry, ...] = field(default=(), compare=False)
    log_dropped: int = field(default=0, compare=False)

    @property
    def name(self) -> str:
        """Name of the policy that decided."""
        return self.policy.rpartition(" ")[0]

    @property
    def version(self) -> str:
        """Version of the policy that decided."""
        return self.policy.rpartition(" ")[2]

    @property
    def weighs_times(self) -> bool:
        """It was decided before."""
        return False

    def decide(self, graph: FusionGraph) -> Iterator[Decision | Declined]:
        """Yield the decisions, about their counterparts where the program is another one."""
        if graph.fingerprint == self.graph:
            yield from self.decisions
            return
        theirs = {key: name for name, key in graph.structure.items()}
        carried = {name: theirs[key] for name, key in self.names if key in theirs}
        for decision in self.decisions:
            missing = [name for name in names_in(decision) if name not in carried]
            if missing:
                first, second = ends_of(decision)
                yield Declined(first, second, "plan.no_counterpart", f"nothing here is what {missing[0]} was")
            else:
                yield renamed(decision, carried)

    def fits(self, graph: FusionGraph) -> bool:
        """Tell whether all that the decisions name has a counterpart in a graph."""
        if graph.fingerprint == self.graph:
            return True
        keys = {key for _, key in self.names}
        return bool(keys) and keys <= set(graph.structure.values())

    def to_json(self) -> str:
        """Return the plan as JSON text with sorted keys; equal plans give equal text."""
        data = {
            "schema": SCHEMA,
            "graph": self.graph,
            "policy": self.policy,
            "cost": self.cost,
            "before": asdict(self.before),
            "after": asdict(self.after),
            "names": dict(self.names),
            "decisions": [decision_to_data(d) for d in self.decisions],
            "log": [asdict(entry) for entry in self.log],
            "log_dropped": self.log_dropped,
        }
        return json.dumps(data, indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> FusionPlan:
        """Return the plan that `to_json` wrote.

        Raises:
            InvalidArgumentError: The text is no plan of this schema.
        """
        try:
            data = json.loads(text)
            if data["schema"] != SCHEMA:
                raise InvalidArgumentError(f"plan schema {data['schema']}, not {SCHEMA}", code="fuser.plan_schema")
            return cls._from_data(data)
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, InvalidArgumentError):
                raise
            raise InvalidArgumentError(f"not a fusion plan: {error!r}", code="fuser.plan_schema") from error

    @classmethod
    def _from_data(cls, data: Mapping[str, Any]) -> FusionPlan:
        return cls(
            graph=data["graph"],
            policy=data["policy"],
            decisions=tuple(decision_from_data(d) for d in data["decisions"]),
            before=Summary(**data["before"]),
            after=Summary(**data["after"]),
            cost=data["cost"],
            names=tuple(sorted(data["names"].items())),
            log=tuple(LogEntry(**entry) for entry in data["log"]),
            log_dropped=data["log_dropped"],
        )

    def diff(self, other: FusionPlan) -> PlanDiff:
        """Return the decisions that differ; falsy when the plans decide the same (perhaps in another order)."""
        mine, theirs = Counter(self.decisions), Counter(other.decisions)
        only_mine, only_theirs = mine - theirs, theirs - mine
        return PlanDiff(
            tuple(d for d in self.decisions if d in only_mine),
            tuple(d for d in other.decisions if d in only_theirs),
        )

    def explain(self, limit: int = 40) -> str:
        """Return a text for people: totals, then up to `limit` log entries, the most bytes saved first."""
        before, after = self.before, self.after
        lines = [
            f"{self.policy}: {before.kernels} -> {after.kernels} kernels, "
            f"{before.bytes_moved:,} -> {after.bytes_moved:,} bytes, "
            f"{before.predicted_us:.1f} -> {after.predicted_us:.1f} us by {self.cost}"
        ]
        ranked = sorted(self.log, key=lambda e: (e.verdict, -e.saved))
        for e in ranked[:limit]:
            reason = f"  [{e.code}] {e.why}" if e.code else f"  {e.why}" if e.why else ""
            lines.append(f"  {e.verdict:8} {e.kind:10} {e.first} + {e.second}  saves {e.saved:,} B{reason}")
        left = len(self.log) - limit + self.log_dropped
        return "\n".join(lines + ([f"  ... {left} more"] if left > 0 else []))


def ends_of(decision: Decision) -> tuple[str, str]:
    """Return the two names that stand for a decision in a log."""
    match decision:
        case Inline(producer, consumer):
            return producer, consumer
        case Fuse(first, second):
            return first, second
        case _:
            return (decision.items[0], decision.items[-1]) if decision.items else ("", "")


def keys_of(graph: FusionGraph, decisions: Iterable[Decision]) -> tuple[tuple[str, str], ...]:
    """Return what decisions name, with the keys of these names, sorted."""
    names = {name for decision in decisions for name in names_in(decision)}
    keys = graph.structure if names else {}
    return tuple(sorted((name, keys[name]) for name in names))


def planned(graph: FusionGraph, decisions: Iterable[Decision], policy: str) -> FusionPlan:
    """Return the plan of some decisions, taken on a fork of a graph on which none was taken yet.

    Args:
        graph: As `FusionGraph.of` gives it, or as a policy is given it.
        decisions: Each legal after those before it.
        policy: `"name version"` of what decided.

    Raises:
        InvalidArgumentError: `fuser.illegal_decision`: one of them isn't legal.
    """
    state, before, taken, log = graph.fork(), summary(graph), tuple(decisions), []
    for decision in taken:
        answer = state.apply(decision)
        if isinstance(answer, Refused):
            raise InvalidArgumentError(
                f"decision {decision_to_data(decision)} is not legal: {answer.why} [{answer.code}]",
                code="fuser.illegal_decision",
            )
        log.append(LogEntry("accepted", answer.kind, *ends_of(decision), answer.saved, "", decision.why))
    return FusionPlan(
        graph.fingerprint,
        policy,
        taken,
        before,
        summary(state),
        graph.cost.name,
        keys_of(graph, taken),
        tuple(log),
    )


def summary(graph: FusionGraph) -> Summary:
    """Return the totals of a graph as it stands."""
    works = [graph.work(k) for k in graph.kernels]
    moved = sum(w.bytes_read + w.bytes_written for w in works)
    return Summary(len(works), len(graph.items) - len(works), moved, round(graph.total_us, 3))
