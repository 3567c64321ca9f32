"""Search for a plan: beams, random walks, evolution; by the cost model, and where it is given, by measurement.

Every method starts from the policies that it is given, so what it finds is never worse than theirs by the cost model.
A candidate is a sequence of decisions; two sequences that lead to the same kernels are one candidate. The best few of
all that were seen can be measured, with those that the search started from, and then the measured time decides: what
is found is as fast as theirs, as far as that can be told.

  beam          the `width` best graphs so far are each carried on by their `expand` best steps
  random        walks of steps drawn by what they save, until nothing saves anything
  evolutionary  (1+1): drop a few decisions of the best sequence, draw others, keep what is not worse
  optuna        the same sequences, their steps taken or left as Optuna's sampler says (an extra)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from intarsia_fuser.decisions import Decision, Declined, Order
from intarsia_fuser.graph import FusionGraph
from intarsia_fuser.policies.greedy import Greedy
from intarsia_fuser.policies.priority import Priority
from intarsia_fuser.policies.protocol import FusionPolicy
from intarsia_fuser.policies.steps import Step, steps
from intarsia_fuser.record import FusionPlan, planned
from intarsia_ir.choices import one_of
from intarsia_ir.errors import UnsupportedError

__all__ = ["METHODS", "Search"]

METHODS = ("beam", "evolutionary", "optuna", "random")
LEAST_US = 1e-9  # less is rounding
Path = tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class Search:
    """Look for a plan of the least predicted, or measured, time.

    Args:
        method: One of `METHODS`.
        width: Graphs kept in a beam.
        expand: Steps tried from each of them.
        trials: Sequences that the other methods try.
        seed: Of the random draws; the same seed finds the same plan.
        start: Policies whose plans are the first candidates.
        times: Measured microseconds of some plans; None: the cost model decides.
        finalists: Candidates that are measured, besides those of `start` and no fusion.

    Raises:
        InvalidArgumentError: There is no such method.
    """

    method: str = "beam"
    width: int = 3
    expand: int = 5
    trials: int = 64
    seed: int = 0
    start: tuple[FusionPolicy, ...] = field(default_factory=lambda: (Greedy(), Priority()))
    times: Callable[[Sequence[FusionPlan]], Sequence[float]] | None = None
    finalists: int = 5

    def __post_init__(self) -> None:
        one_of("the method of a search", self.method, METHODS)

    @property
    def name(self) -> str:
        """Identifier kept in plans."""
        return f"search({self.method}{', measured' if self.times else ''})"

    @property
    def version(self) -> str:
        """Version of the decisions."""
        return "1"

    def decide(self, graph: FusionGraph) -> Iterable[Decision]:
        """Return the decisions of the best candidate.

        Raises:
            UnsupportedError: `fuser.no_optuna`: the method is `"optuna"`, which isn't installed.
        """
        found = _Found(graph)
        start = [_candidate(policy, graph) for policy in (*self.start, _Nothing())]
        for candidate in start:
            found.add(*candidate)
        {"beam": self._beam, "random": self._random, "evolutionary": self._evolve, "optuna": self._ask}[self.method](
            graph, found
        )
        if self.times is None:
            return found.best(1)[0]
        # a start that other decisions lead to as well is measured once, by those that were found first
        best = list(dict.fromkeys([*found.best(self.finalists), *(found.path(state) for _, state in start)]))
        measured = self.times([planned(graph, path, f"{self.name} {self.version}") for path in best])
        return best[min(range(len(best)), key=measured.__getitem__)]

    def _beam(self, graph: FusionGraph, found: _Found) -> None:
        states: list[tuple[float, Path, FusionGraph]] = [(graph.total_us, (), graph.fork())]
        seen = {graph.state()}
        while states:
            tried: list[tuple[float, int, Path, FusionGraph, Step]] = []
            for us, path, state in states:
                ranked = sorted(_useful(state), key=lambda s: -s.saved_us)[: self.expand]
                tried += [(us - s.saved_us, len(tried) + k, path, state, s) for k, s in enumerate(ranked)]
            states = []
            for us, _, path, state, step in sorted(tried, key=lambda t: t[:2]):
                after = _taken(state, step)
                if after.state() not in seen and len(states) < self.width:
                    seen.add(after.state())
                    states.append((us, (*path, *step.decisions), after))
                    found.add(*states[-1][1:])

    def _random(self, graph: FusionGraph, found: _Found) -> None:
        rng = random.Random(self.seed)
        for _ in range(self.trials):
            found.add(*_walk(graph.fork(), (), rng))

    def _evolve(self, graph: FusionGraph, found: _Found) -> None:
        rng = random.Random(self.seed)
        for _ in range(self.trials):
            path, state = list(found.best(1)[0]), graph.fork()
            for _ in range(min(rng.choice((1, 1, 2, 4)), len(path))):
                path.pop(rng.randrange(len(path)))
            kept = tuple([d for d in path if not isinstance(d, Order) and state.apply(d)])
            found.add(*_walk(state, kept, rng))

    def _ask(self, graph: FusionGraph, found: _Found) -> None:
        study = _optuna().create_study(sampler=_optuna().samplers.TPESampler(seed=self.seed))
        for _ in range(self.trials):
            trial, state, path = study.ask(), graph.fork(), tuple[Decision, ...]()
            asked: set[Path] = set()
            while new := [s for s in _useful(state) if s.decisions not in asked]:
                asked.update(s.decisions for s in new)
                taken = [s for s in new if trial.suggest_categorical(repr(s.decisions), [True, False])]
                path = _through(state, path, sorted(taken, key=lambda s: -s.saved_us))
            found.add(path, state)
            study.tell(trial, state.total_us)


class _Found:
    """Candidates: the kernels that sequences of decisions lead to, each with the first sequence and its time."""

    def __init__(self, graph: FusionGraph) -> None:
        self._of: dict[Any, tuple[float, int, Path]] = {}

    def add(self, path: Path, state: FusionGraph) -> None:
        self._of.setdefault(state.state(), (state.total_us, len(self._of), path))

    def path(self, state: FusionGraph) -> Path:
        return self._of[state.state()][2]

    def best(self, number: int) -> list[Path]:
        return [path for _, _, path in sorted(self._of.values(), key=lambda c: c[:2])[:number]]


class _Nothing:
    """Decides nothing: a plan without fusion is a candidate, too."""

    name, version = "nothing", "1"

    def decide(self, graph: FusionGraph) -> Iterable[Decision | Declined]:
        return ()


def _candidate(policy: FusionPolicy, graph: FusionGraph) -> tuple[Path, FusionGraph]:
    """What a policy decides, but for an order, and the graph after it."""
    path, state = tuple[Decision, ...](), graph.fork()
    for proposal in policy.decide(state):
        if not isinstance(proposal, Declined | Order) and state.apply(proposal):
            path = (*path, proposal)
    return path, state


def _useful(state: FusionGraph) -> list[Step]:
    return [s for s in steps(state) if s.saved_us > LEAST_US]


def _taken(state: FusionGraph, step: Step) -> FusionGraph:
    after = state.fork()
    for decision in step.decisions:
        after.apply(decision)
    return after


def _walk(state: FusionGraph, path: Path, rng: random.Random) -> tuple[Path, FusionGraph]:
    """Steps in an order drawn by what they save, until nothing saves anything; `state` is changed."""
    while useful := _useful(state):
        # the k-th largest of random() ** (1 / weight) is the k-th draw without replacement
        drawn = sorted(useful, key=lambda s: -(rng.random() ** (1.0 / s.saved_us)))
        path = _through(state, path, drawn)
    return path, state


def _through(state: FusionGraph, path: Path, listed: Iterable[Step]) -> Path:
    """Take the steps that still save something when their turn comes; `state` is changed."""
    for step in listed:
        saved = state.saved_us(step.decisions)
        if saved is not None and saved > LEAST_US:
            for decision in step.decisions:
                state.apply(decision)
            path = (*path, *step.decisions)
    return path


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise UnsupportedError(
            "the method 'optuna' needs Optuna", code="fuser.no_optuna", hints=("pip install intarsia-fuser[search]",)
        ) from error
    return optuna
