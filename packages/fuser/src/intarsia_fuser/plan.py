"""Planning: run a policy against the legality check and keep what was decided as data.

    loops program -> Draft -> policy proposes, legality answers, the draft follows -> FusionPlan

The plan is the list of accepted decisions, in order. Each was legal after those before it, so every prefix of a plan
is a plan, which is what `fuel` cuts off; replaying it needs no policy.
"""

from __future__ import annotations

from torch.fx import GraphModule

from intarsia_fuser import legality
from intarsia_fuser.border import to_program
from intarsia_fuser.cost import CostModel, Roofline
from intarsia_fuser.decisions import Decision, Declined
from intarsia_fuser.draft import Draft
from intarsia_fuser.fingerprint import fingerprint
from intarsia_fuser.graph import FusionGraph
from intarsia_fuser.moves import Prices
from intarsia_fuser.policies.greedy import Greedy
from intarsia_fuser.policies.protocol import FusionPolicy
from intarsia_fuser.record import FusionPlan, LogEntry, ends_of, keys_of, summary
from intarsia_ir.records import Target
from intarsia_loops.program import Program, Refused

__all__ = ["plan"]

LOG_LIMIT = 2000  # refusals and declined pairs kept; accepted decisions always are


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
    before = summary(graph)
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
        after=summary(graph),
        cost=graph.cost.name,
        names=keys_of(graph, decisions),
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
        first, second = ends_of(proposal)
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
