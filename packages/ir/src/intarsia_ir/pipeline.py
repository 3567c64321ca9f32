"""A pipeline as a value: named stages, each with the level it takes and the level it gives.

A level is a class of values (`intarsia_ir.values`, `intarsia_loops.levels`, or one of yours); nothing here knows which.
Editing returns a new pipeline, and a wrong order is refused when the value is made, before anything runs. From the
stage that gives a `Partition` on there may be several graphs: a stage that takes a level is run on each of them, one
that takes a partition (`Partition[Half]`) on all at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args, get_origin

import torch.fx as fx

from intarsia_ir.choices import instance_of, refuse_unknown
from intarsia_ir.errors import InvalidArgumentError, naming_stage
from intarsia_ir.purity import check_unchanged, lines_of
from intarsia_ir.values import Partition

__all__ = ["Pipeline", "Planned", "Stage", "graph_pass", "level_of"]

GraphPass = Callable[..., fx.GraphModule]


@dataclass(frozen=True, slots=True)
class Planned:
    """What a stage returns that decided something: its value, and the plan beside it."""

    value: Any
    plan: Any


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of a pipeline.

    Args:
        name: Unique in its pipeline.
        takes: Level of the value it is given: a class, or `Partition[...]` of one.
        gives: Level of the value it returns.
        run: The step; pure, the given value is left as it is. It may return `Planned(value, plan)`.
        trusted: What it gives is verified only with `verify_each`: it is one of the default pipeline's.
        counts: `run` takes a keyword `fuel`: how many of its rewrites or decisions it may carry out; None: all.
        fuel: What it is given then, for each graph anew.
    """

    name: str
    takes: Any
    gives: Any
    run: Callable[..., Any]
    trusted: bool = False
    counts: bool = False
    fuel: int | None = None

    def __call__(self, value: Any) -> tuple[Any, tuple[Any, ...]]:
        """Return what the stage makes of a value, and its plans: of a partition, one for each graph.

        Raises:
            InvalidArgumentError: It returns something else than it says.
        """
        if isinstance(value, Partition) and get_origin(self.takes) is not Partition:
            (forward, plans), *backwards = map(self._run, value.graphs)
            plans = (*plans, *[plan for _, more in backwards for plan in more])
            return Partition(forward, tuple(half for half, _ in backwards), value.halves), plans
        return self._run(value)

    def checked(self, value: Any, verify: Callable[[Any], None]) -> tuple[Any, tuple[Any, ...]]:
        """Do what calling does, and check the stage: what it gives, and that it left what it was given as it was.

        Args:
            value: As for a call.
            verify: Raises if a graph of what it gives isn't one of its level.

        Raises:
            InvalidArgumentError: `pipeline.impure`: it changed a graph that it was given.
        """
        before = lines_of(value)
        result, plans = self(value)
        with naming_stage(self.name, ours=self.trusted):
            check_unchanged(before, value, ours=self.trusted)
            for graph in result.graphs if isinstance(result, Partition) else (result,):
                verify(graph)
        return result, plans

    def _run(self, value: Any) -> tuple[Any, tuple[Any, ...]]:
        with naming_stage(self.name, ours=self.trusted):
            result = self.run(value, fuel=self.fuel) if self.counts else self.run(value)
            plans = (result.plan,) if isinstance(result, Planned) else ()
            result = result.value if isinstance(result, Planned) else result
            for graph in result.graphs if isinstance(result, Partition) else (result,):
                if not isinstance(graph, level_of(self.gives)):
                    raise InvalidArgumentError(
                        f"the stage says that it gives {_name(self.gives)}, but gives {type(graph).__name__}",
                        code="pipeline.level",
                    )
        return result, plans


def level_of(level: Any) -> type:
    """Return the level of the graphs in a partition; other levels as they are."""
    return get_args(level)[0] if get_origin(level) is Partition else level  # type: ignore[no-any-return]


def graph_pass(name: str, level: Any, function: GraphPass) -> Stage:
    """Return a stage that applies `function` to graphs alone and stays at `level`; it counts if that takes `fuel`."""

    def run(value: Any, **fuel: Any) -> Any:
        result = function(value.graph_module, **fuel)
        instance_of("what a stage gives", result, fx.GraphModule)
        return replace(value, graph_module=result)

    return Stage(name, level_of(level), level_of(level), run, counts=_takes_fuel(function))


@dataclass(frozen=True, slots=True)
class Pipeline:
    """An ordered tuple of stages.

    Raises:
        InvalidArgumentError: A stage takes another level than the one before it gives, or a name is used twice.

    Example:
        >>> lengths = Stage("measure", str, int, len)
        >>> Pipeline((lengths, Stage("double", int, int, lambda n: 2 * n))).run("four")
        8
        >>> Pipeline((lengths, Stage("shout", str, str, str.upper)))
        Traceback (most recent call last):
        ...
        intarsia_ir.errors.InvalidArgumentError: stage 'shout' takes str, but 'measure' gives int ...
    """

    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        names = [s.name for s in self.stages]
        for name in names:
            if names.count(name) > 1:
                raise InvalidArgumentError(f"two stages are called {name!r}", code="pipeline.duplicate_stage")
        for stage in self.stages:
            for level in (stage.takes, stage.gives):
                _check_level(f"stage {stage.name!r} names", level)
        for before, after in zip(self.stages, self.stages[1:], strict=False):
            if level_of(before.gives) is not level_of(after.takes):
                raise InvalidArgumentError(
                    f"stage {after.name!r} takes {_name(after.takes)}, but {before.name!r} gives {_name(before.gives)}",
                    code="pipeline.order",
                )

    def run(self, value: Any) -> Any:
        """Return what the stages make of a value, one after the other; their plans are dropped."""
        for stage in self.stages:
            value, _ = stage(value)
        return value

    def index(self, name: str) -> int:
        """Return the position of the stage `name`.

        Raises:
            InvalidArgumentError: There is no such stage.
        """
        names = [s.name for s in self.stages]
        if name not in names:
            raise InvalidArgumentError(
                f"no stage is called {name!r}; there are {', '.join(names)}", code="pipeline.unknown_stage"
            )
        return names.index(name)

    def replace(self, name: str, stage: Stage | GraphPass) -> Pipeline:
        """Return the pipeline with stage `name` replaced; a plain function must keep the level."""
        at = self.index(name)
        return Pipeline((*self.stages[:at], _as_stage(name, self.stages[at].takes, stage), *self.stages[at + 1 :]))

    def after(self, name: str, stage: Stage | GraphPass) -> Pipeline:
        """Return the pipeline with `stage` inserted after stage `name`."""
        at = self.index(name) + 1
        new = _as_stage(getattr(stage, "__name__", "user"), self.stages[at - 1].gives, stage)
        return Pipeline((*self.stages[:at], new, *self.stages[at:]))

    def before(self, name: str, stage: Stage | GraphPass) -> Pipeline:
        """Return the pipeline with `stage` inserted before stage `name`."""
        at = self.index(name)
        new = _as_stage(getattr(stage, "__name__", "user"), self.stages[at].takes, stage)
        return Pipeline((*self.stages[:at], new, *self.stages[at:]))

    def without(self, name: str) -> Pipeline:
        """Return the pipeline without stage `name`."""
        at = self.index(name)
        return Pipeline((*self.stages[:at], *self.stages[at + 1 :]))

    @property
    def counting(self) -> tuple[str, ...]:
        """Names of the stages that take fuel, in order: what a bisection goes through."""
        return tuple(stage.name for stage in self.stages if stage.counts)

    def limit(self, fuel: Mapping[str, int]) -> Pipeline:
        """Return the pipeline whose stages carry out so many rewrites or decisions at most, in each graph.

        Args:
            fuel: Name of a stage -> its limit; other stages keep theirs, which is none at first.

        Raises:
            InvalidArgumentError: `pipeline.fuel`: a stage isn't there or takes no fuel, or a limit is no count.

        Example:
            >>> from intarsia_ir.values import Half
            >>> first = graph_pass("first", Half, lambda gm, *, fuel=None: gm)
            >>> Pipeline((first,)).limit({"first": 3}).stages[0].fuel
            3
        """
        instance_of("fuel", fuel, Mapping)
        refuse_unknown("stage that takes fuel:", fuel, self.counting, code="pipeline.fuel")
        for name, count in fuel.items():
            if type(count) is not int or count < 0:
                raise InvalidArgumentError(f"the fuel of {name!r} must be a count, not {count!r}", code="pipeline.fuel")
        return Pipeline(tuple(replace(s, fuel=fuel.get(s.name, s.fuel)) for s in self.stages))

    def until(self, level: type) -> Pipeline:
        """Return the stages up to the last one that gives `level`.

        Raises:
            InvalidArgumentError: None does, or there is no such level.
        """
        _check_level("until is given", level)
        at = max((k for k, s in enumerate(self.stages) if level_of(s.gives) is level_of(level)), default=None)
        if at is None:
            raise InvalidArgumentError(f"no stage gives {_name(level)}", code="pipeline.unknown_level")
        return Pipeline(self.stages[: at + 1])


def _check_level(where: str, level: Any) -> None:
    if not isinstance(level_of(level), type):
        raise InvalidArgumentError(f"{where} {level!r}, which is no class of values", code="pipeline.unknown_level")


def _takes_fuel(function: Callable[..., Any]) -> bool:
    try:
        return "fuel" in inspect.signature(function).parameters
    except ValueError:  # one in C that doesn't say
        return False


def _name(level: Any) -> str:
    return level_of(level).__name__


def _as_stage(name: str, level: Any, stage: Stage | GraphPass) -> Stage:
    if not callable(stage):
        raise InvalidArgumentError(f"a stage is a Stage or a pass, not {stage!r}", code="pipeline.not_a_stage")
    return stage if isinstance(stage, Stage) else graph_pass(name, level, stage)
