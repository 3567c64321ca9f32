"""A state machine: between calls it changes what the compiled function relied on, and no call may give a stale result.

A case takes one subject of `world` and a few of its knobs, so few that their values fit into the versions that a
function may have; then each step turns one knob in two equal worlds, calls one in eager and one compiled, and compares
results, arguments and state. `--without KIND` switches one kind of guard off: then a stale result must be found.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import io
import math
import random
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch

import intarsia
import intarsia_dispatch.dispatcher
import intarsia_guards
from intarsia import IntarsiaError, UnsupportedError
from intarsia_ir.records import GuardKind
from integration.fuzz.observe import Observation, difference, observe
from integration.fuzz.run import load
from integration.fuzz.world import SUBJECTS, WORLD, Subject

__all__ = ["IMPLIED", "Tally", "main", "run_case", "run_steps"]

STEPS = 30
"""Steps of a case."""
VERSIONS = 8
"""The recompile limit: more combinations than this would end in eager."""

_BACKENDS = ("eager",) * 6 + ("aten",) * 3 + ("auto",)
# what operators read when they run is baked into a graph by functionalization alone
_AMBIENT = (GuardKind.AUTOCAST, GuardKind.DEFAULT_DTYPE, GuardKind.DETERMINISTIC)

IMPLIED: dict[GuardKind, str] = {
    GuardKind.DETERMINISTIC: "asking for it breaks the graph, so it is read at each call; operations read it",
    GuardKind.NOT_IDENTITY: "no capture records it: `is not` is decided by the type or identity guards of both sides",
}
"""Kinds whose loss can't be seen, and why: another guard always stands beside them."""


class Tally:
    """What the steps came to."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.knobs: Counter[str] = Counter()
        self.stale: list[str] = []


def main(arguments: list[str]) -> int:
    """Run the steps, or show for each kind of guard that switching it off is noticed; 0 when all is as it must be."""
    parser = argparse.ArgumentParser(prog="python -m integration.fuzz machine", description=__doc__)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--subject", help="one subject for all")
    parser.add_argument("--without", help="a kind of guard, such as constant; all: each kind in turn")
    options = parser.parse_args(arguments)
    if options.without:
        kinds = tuple(GuardKind) if options.without == "all" else (GuardKind(options.without),)
        return max(_show_without(kind, options) for kind in kinds)
    tally = run_steps(options.steps, options.seed, subject=options.subject)
    for text in tally.stale:
        print(text)
    counts = tally.counts
    print(
        f"steps {counts['steps']}: stale results {len(tally.stale)}, hits {counts['hits']}, "
        f"compiled {counts['compiled']}, in eager {counts['eager']}, refused {counts['refused']}, "
        f"recompiles {counts['recompiles']}"
    )
    rarest = ", ".join(f"{name} {n}" for name, n in sorted(tally.knobs.items(), key=lambda item: item[1])[:8])
    print(f"knobs {len(tally.knobs)}; least turned: {rarest}")
    return 1 if tally.stale or 2 * counts["hits"] < counts["steps"] else 0


def _show_without(kind: GuardKind, options: argparse.Namespace) -> int:
    tally = run_steps(options.steps, options.seed, without=kind, first=True, subject=options.subject)
    if tally.stale:
        print(f"without {kind.value}: stale after {tally.counts['steps']} steps: {tally.stale[0][:200]}", flush=True)
        return 0
    why = IMPLIED.get(kind)
    print(
        f"without {kind.value}: no stale result in {tally.counts['steps']} steps; {why or 'NOT EXPLAINED'}", flush=True
    )
    return 0 if why else 1


def run_steps(
    steps: int, seed: int, *, without: GuardKind | None = None, first: bool = False, subject: str | None = None
) -> Tally:
    """Run cases until there were so many steps.

    Args:
        steps: How many.
        seed: Decides everything.
        without: A kind of guard to leave out.
        first: Stop at the first stale result.
        subject: The one subject to take; None: all in turn.
    """
    tally = Tally()
    chosen = [s for s in SUBJECTS if subject in (None, s.name)]
    case = 0
    with _guards_without(without):
        while tally.counts["steps"] < steps and not (first and tally.stale):
            run_case(random.Random(f"{seed} {case}"), chosen[case % len(chosen)], tally, without)
            case += 1
    return tally


def run_case(choose: random.Random, subject: Subject, tally: Tally, without: GuardKind | None = None) -> None:
    """Run one case: fresh worlds, fresh versions.

    Args:
        choose: Decides everything.
        subject: What is called.
        tally: What it comes to is added there.
        without: The kind of guard that is left out, for the choice of a backend that would notice.
    """
    backend = "aten" if subject.functional or without in _AMBIENT else choose.choice(_BACKENDS)
    knobs = _chosen_knobs(choose, subject)
    intarsia.reset()
    worlds = load(WORLD), load(WORLD)
    function = getattr(worlds[1], subject.name)
    compiled = intarsia.compile(function, backend=backend, options={"on_error": "raise"})
    runs = _Runs(getattr(worlds[0], subject.name), compiled, function)
    turned: list[str] = []
    try:
        for _ in range(STEPS):
            name = choose.choice(sorted(knobs))
            statement = choose.choice(knobs[name])
            turned.append(statement)
            tally.knobs[f"{subject.name}.{name}"] += 1
            found = runs.step(worlds, subject, statement, tally, exact=backend == "eager")
            if found:
                tally.stale.append(f"{subject.name} ({backend}) after {turned[-6:]}: {found}")
                return
    finally:
        # the next case starts from the state of a fresh process
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)


def _chosen_knobs(choose: random.Random, subject: Subject) -> dict[str, tuple[str, ...]]:
    """Choose knobs, the values of which combine to no more than the versions that a function may have."""
    names = sorted(subject.knobs)
    choose.shuffle(names)
    chosen: dict[str, tuple[str, ...]] = {}
    for name in names:
        sizes = [len(values) for values in chosen.values()]
        if math.prod(sizes) * len(subject.knobs[name]) <= VERSIONS:
            chosen[name] = subject.knobs[name]
    return chosen


class _Runs:
    """The two functions, and one step of both."""

    def __init__(self, plain: Callable[..., Any], compiled: Callable[..., Any], function: Callable[..., Any]) -> None:
        self.plain, self.compiled, self.function = plain, compiled, function

    def step(
        self, worlds: tuple[types.ModuleType, ...], subject: Subject, statement: str, tally: Tally, *, exact: bool
    ) -> str:
        """Turn a knob and call; return what differs."""
        wanted = self._one(worlds[0], subject, statement, self.plain)
        before, ran = intarsia.stats(), _ran[0]
        try:
            got = self._one(worlds[1], subject, statement, self.compiled)
            refused = False
        except UnsupportedError:
            got = self._one(worlds[1], subject, statement, self.function)
            refused = True
        except IntarsiaError as error:
            return f"{type(error).__name__}: {error}"
        after = intarsia.stats()
        tally.counts["steps"] += 1
        tally.counts["recompiles"] += after.recompiles - before.recompiles
        if refused:
            tally.counts["refused"] += 1
        elif after.frames_compiled > before.frames_compiled:
            tally.counts["compiled"] += 1
        else:
            tally.counts["hits" if _ran[0] > ran else "eager"] += 1
        return difference(got, wanted, exact=exact)

    def _one(
        self, world: types.ModuleType, subject: Subject, statement: str, function: Callable[..., Any]
    ) -> Observation:
        names = vars(world)
        names["run"] = function
        printed = io.StringIO()
        torch.manual_seed(0)
        # what the statement changes may have gone with the world it was drawn for: the same in both
        with torch.no_grad(), contextlib.suppress(LookupError):
            exec(statement, names)
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                exec(subject.call, names)
                result = names["result"]
            except IntarsiaError:
                raise
            except Exception as error:
                result = error
        state = {"thing": world.thing, "net": world.net, "table": world.table}
        return observe({"result": result, **state}, printed.getvalue())


_ran = [0]


@contextlib.contextmanager
def _guards_without(kind: GuardKind | None) -> Iterator[None]:
    """Count the runs of compiled graphs, and leave a kind of guard out."""
    caller, build = intarsia_dispatch.dispatcher.graph_caller, intarsia_guards.build_guards

    def counting(graph: Any, *further: Any, **named: Any) -> Any:
        run = graph.run

        def counted(*inputs: Any) -> Any:
            _ran[0] += 1
            return run(*inputs)

        return caller(dataclasses.replace(graph, run=counted), *further, **named)

    intarsia_dispatch.dispatcher.graph_caller = counting
    if kind is not None:
        intarsia_guards.build_guards = functools.partial(build, without=frozenset({kind}))  # type: ignore[assignment]
    try:
        yield
    finally:
        intarsia_dispatch.dispatcher.graph_caller = caller
        intarsia_guards.build_guards = build
