"""The pipeline as a value: named stages, each with the dialect it takes and the dialect it gives.

Editing returns a new pipeline, and a wrong order is rejected when the value is made, before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch.fx as fx

from intarsia._program import DIALECTS, Program
from intarsia_ir.errors import InvalidArgumentError

__all__ = ["Pipeline", "Stage", "graph_pass"]

GraphPass = Callable[[fx.GraphModule], fx.GraphModule]


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of a pipeline.

    Args:
        name: Unique in its pipeline.
        takes: Dialect of the program it is given.
        gives: Dialect of the program it returns.
        run: The step; pure, the given program is left as it is.
        trusted: What it gives is verified only with `verify_each`: it is one of the default pipeline's.
    """

    name: str
    takes: str
    gives: str
    run: Callable[[Program], Program]
    trusted: bool = False


def graph_pass(name: str, dialect: str, function: GraphPass) -> Stage:
    """Return a stage that applies `function` to the graph alone and stays in `dialect`."""
    return Stage(name, dialect, dialect, lambda p: replace(p, graph_module=function(p.graph_module)))


@dataclass(frozen=True, slots=True)
class Pipeline:
    """An ordered tuple of stages from FX(torch) to a callable (or to any dialect before it).

    Raises:
        InvalidArgumentError: A stage takes another dialect than the one before it gives, or a name is used twice.

    Example:
        >>> import intarsia
        >>> pipeline = intarsia.default_pipeline()
        >>> [stage.name for stage in pipeline.stages][:2]
        ['recognise_attention', 'drop_full_masks']
        >>> pipeline.without("functionalize")
        Traceback (most recent call last):
        ...
        intarsia_ir.errors.InvalidArgumentError: stage 'fold_constants' takes aten, but 'to_aten' gives effects ...
    """

    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        names = [s.name for s in self.stages]
        for name in names:
            if names.count(name) > 1:
                raise InvalidArgumentError(f"two stages are called {name!r}", code="pipeline.duplicate_stage")
        for stage in self.stages:
            for dialect in (stage.takes, stage.gives):
                if dialect not in DIALECTS:
                    raise InvalidArgumentError(
                        f"stage {stage.name!r} names the unknown dialect {dialect!r}; there are {', '.join(DIALECTS)}",
                        code="pipeline.unknown_dialect",
                    )
        for before, after in zip(self.stages, self.stages[1:], strict=False):
            if before.gives != after.takes:
                raise InvalidArgumentError(
                    f"stage {after.name!r} takes {after.takes}, but {before.name!r} gives {before.gives}",
                    code="pipeline.order",
                )

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
        """Return the pipeline with stage `name` replaced; a plain function must keep the dialect."""
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

    def until(self, dialect: str) -> Pipeline:
        """Return the stages up to the last one that gives `dialect`."""
        at = max((k for k, s in enumerate(self.stages) if s.gives == dialect), default=None)
        if at is None:
            wrong = f"no stage gives the dialect {dialect!r}; there are {', '.join(DIALECTS)}"
            raise InvalidArgumentError(wrong, code="pipeline.unknown_dialect")
        return Pipeline(self.stages[: at + 1])


def _as_stage(name: str, dialect: str, stage: Stage | GraphPass) -> Stage:
    if not callable(stage) and not isinstance(stage, Stage):
        raise InvalidArgumentError(f"a stage is a Stage or a pass, not {stage!r}", code="pipeline.not_a_stage")
    return stage if isinstance(stage, Stage) else graph_pass(name, dialect, stage)
