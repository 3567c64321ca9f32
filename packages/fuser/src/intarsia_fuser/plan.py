"""Planning: run a policy against the legality check and keep what was decided as data.

    loops program -> Draft -> policy proposes, legality answers, the draft follows -> FusionPlan

The plan is the list of accepted decisions, in order. Each was legal after those before it, so every prefix of a plan
is a plan, which is what `fuel` cuts off; replaying it needs no policy.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from torch.fx import GraphModule

from intarsia_fuser import legality
from intarsia_fuser.border import to_program
from intarsia_fuser.cost import CostModel, Roofline
from intarsia_fuser.decisions import Decision, Declined, Fuse, Order, decision_from_data, decision_to_data
from intarsia_fuser.draft import Draft
from intarsia_fuser.fingerprint import fingerprint
from intarsia_fuser.graph import FusionGraph
from intarsia_fuser.moves import Prices
from intarsia_fuser.policies.greedy import Greedy
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Target
from intarsia_loops.program import Program, Refused

__all__ = ["FusionPlan", "FusionPolicy", "LogEntry", "PlanDiff", "Summary", "plan"]

SCHEMA = 1
LOG_LIMIT = 2000  # refusals and declined pairs kept; accepted decisions always are


class FusionPolicy(Protocol):
    """What decides. Any object with these three members; nothing is registered, nothing is subclassed."""

    @property
    def name(self) -> str:
        """Identifier kept in plans, such as `"greedy"`."""

    @property
    def version(self) -> str:
        """Changes whenever the same graph may get another plan."""

    def decide(self, graph: FusionGraph) -> Iterable[Decision | Declined]:
        """Yield decisions, best one at a time from a generator: each is checked and, when it is legal, carried out
        before the next is asked for, and `graph` shows the result. An illegal one is logged and has no effect.
        """


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

    Args:
        graph: Fingerprint of the loops program that it was made for.
        policy: `"name version"` of what decided.
        decisions: In the order in which they were accepted.
        before: Totals with every nest a kernel of its own.
        after: Totals once the decisions are carried out.
        cost: Name of the cost model behind the predicted times.
        log: Every accepted decision, and refused and declined ones up to a limit.
        log_dropped: Number of entries beyond that limit.
    """

    graph: str
    policy: str
    decisions: tuple[Decision, ...]
    before: Summary = field(compare=False)
    after: Summary = field(compare=False)
    cost: str = field(default="", compare=False)
    log: tuple[LogEntry, ...] = field(default=(), compare=False)
    log_dropped: int = field(default=0, compare=False)

    def to_json(self) -> str:
        """Return the plan as JSON text with sorted keys; equal plans give equal text."""
        data = {
            "schema": SCHEMA,
            "graph": self.graph,
            "policy": self.policy,
            "cost": self.cost,
            "before": asdict(self.before),
            "after": asdict(self.after),
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


def plan(
    loops_gm: GraphModule | Program,
    *,
    policy: FusionPolicy | None = None,
    target: Target | None = None,
    cost: CostModel | None = None,
    fuel: int | None = None,
    check: bool = True,
) -> FusionPlan:
    """Ask a policy how to fuse a loops program.

    Args:
        loops_gm: FX(loops), or the `Program` in it. Untouched.
        policy: What decides; `Greedy()` when not given.
        target: What the kernels will run on; one thread of a plain CPU when not given.
        cost: Time model that the policy may ask and the summaries use; `Roofline.of(target)` when not given.
        fuel: Largest number of decisions; None for no limit.
        check: Verify the input.

    Returns:
        The plan; `apply` carries it out.

    Raises:
        VerifyError: The input is no valid loops program (with `check`).
        InvalidArgumentError: The policy yields something that is no decision.
    """
    program = to_program(loops_gm, check)
    policy = policy or Greedy()
    prices = Prices(cost or Roofline.of(target or Target()))
    graph = FusionGraph(draft := Draft(program), prices, live=True)
    before = _summary(graph)
    log = _Log()
    decisions: list[Decision] = []
    if fuel is None or fuel > 0:
        for proposal in policy.decide(graph):
            accepted = log.judge(draft, proposal)
            if accepted is None:
                continue
            legality.carry_out(draft, accepted)
            decisions.append(accepted.decision)
            if fuel is not None and len(decisions) >= fuel:
                break
    return FusionPlan(
        graph=fingerprint(program),
        policy=f"{policy.name} {policy.version}",
        decisions=tuple(decisions),
        before=before,
        after=_summary(graph),
        cost=graph.cost.name,
        log=tuple(log.entries),
        log_dropped=log.dropped,
    )


class _Log:
    """Collects entries: all accepted ones, and refused and declined ones once a pair and reason, up to `LOG_LIMIT`."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self.dropped = 0
        self._seen: set[tuple[str, str, str]] = set()

    def judge(self, draft: Draft, proposal: Decision | Declined) -> legality.Accepted | None:
        """Check a proposal, note the answer, and return it when it may be carried out."""
        if isinstance(proposal, Declined):
            self._add_negative("declined", "pair", proposal.first, proposal.second, proposal.code, proposal.why)
            return None
        answer = legality.check(draft, proposal)
        first, second = _names(proposal)
        if isinstance(answer, Refused):
            self._add_negative("refused", type(proposal).__name__.lower(), first, second, answer.code, answer.why)
            return None
        self.entries.append(LogEntry("accepted", answer.kind, first, second, answer.saved, "", proposal.why))
        return answer

    def _add_negative(self, verdict: str, kind: str, first: str, second: str, code: str, why: str) -> None:
        # a pair may be tried again after every merge; once a reason is enough
        if (first, second, code) in self._seen:
            return
        if len(self._seen) >= LOG_LIMIT:
            self.dropped += 1
            return
        self._seen.add((first, second, code))
        self.entries.append(LogEntry(verdict, kind, first, second, 0, code, why))


def _names(decision: Decision) -> tuple[str, str]:
    if isinstance(decision, Order):
        return (decision.items[0], decision.items[-1]) if decision.items else ("", "")
    if isinstance(decision, Fuse):
        return decision.first, decision.second
    return decision.producer, decision.consumer


def _summary(graph: FusionGraph) -> Summary:
    works = [graph.work(k) for k in graph.kernels]
    moved = sum(w.bytes_read + w.bytes_written for w in works)
    us = sum(graph.cost.kernel_us(w) for w in works)
    return Summary(len(works), len(graph.items) - len(works), moved, round(us, 3))
