"""The default pipelines: which package does which step, for a target."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import torch

import intarsia_autodiff
import intarsia_cpp
import intarsia_functionalizer
import intarsia_fuser
import intarsia_ir.aten
import intarsia_ir.torch
import intarsia_loops
import intarsia_rewrites
import intarsia_runtime
import intarsia_scheduler
import intarsia_triton
from intarsia._pipeline import Pipeline, Stage, graph_pass
from intarsia._program import Program
from intarsia_ir.choices import one_of
from intarsia_ir.records import Recorded, Target

__all__ = ["default_pipeline", "dialect_module", "interpreted"]

EMITTERS: Mapping[str, Any] = MappingProxyType({"cpu": intarsia_cpp.emit_unit, "cuda": intarsia_triton.emit_unit})


def default_pipeline(
    target: Target | None = None,
    *,
    policy: Any = None,
    cost: Any = None,
    partition: Any = None,
    cache_dir: str | Path | None = None,
    rng: str | None = None,
    schedule: Any = None,
    emitters: Mapping[str, Any] = EMITTERS,
) -> Pipeline:
    """Return the stages from FX(torch) to a callable; where gradients are needed, to a pair.

    Args:
        target: What to compile for; None asks the machine. Graphs on another device are compiled for that one, asked.
        policy: Fusion policy or plan (for several graphs, `intarsia_fuser.Replay`); None is `intarsia_fuser.Greedy()`.
        cost: Cost model of fusion; None is the roofline of the target.
        partition: What is saved for the backward pass: a policy or plan of `intarsia_autodiff`; None is `MinCut()`.
        cache_dir: Folder of the on-disk cache; None is the user's own.
        rng: `"eager"`: random ops draw eager's numbers; `"philox"`: kernels make others, of the same distributions.
            None: the first on the CPU, the second on a GPU.
        schedule: What decides how kernels run; None is `intarsia_scheduler.Measured()`, which merges no kernels where
            the fusion policy is `NoFusion()`: then there are as many as it planned.
        emitters: `(intarsia_loops.launches.Launches) -> KernelSource` by the kind of device. For another kind, replace
            the stage `build` as well.

    Raises:
        InvalidArgumentError: `options.value`: nothing prints kernels for the target's kind of device.

    Example:
        >>> from intarsia_fuser import NoFusion
        >>> pipeline = default_pipeline(policy=NoFusion())
    """
    given = target or intarsia_runtime.detect_target()
    one_of("the device of a target", given.device, tuple(emitters))

    aim: Any = lambda d: given if d.type == given.device else intarsia_runtime.detect_target(d)  # noqa: E731

    def fuse(p: Program) -> Program:
        plan = intarsia_fuser.plan(p.graph_module, policy=policy, target=aim(p.device), cost=cost, check=False)
        return replace(p, graph_module=intarsia_fuser.apply(p.graph_module, plan, check=False), plan=plan)

    def scheduled(p: Program) -> Program:
        merges = p.plan is None or p.plan.name != intarsia_fuser.NoFusion().name
        how = schedule or intarsia_scheduler.Measured(merges=merges)
        return replace(p, scheduled=intarsia_scheduler.scheduled(p.graph_module, aim(p.device), how, check=False))

    def emit(p: Program) -> Program:
        assert p.scheduled is not None  # the order of dialects guarantees it
        return replace(p, source=emitters[aim(p.device).device](p.scheduled.launches))

    def build(p: Program) -> Program:
        cache = _cache_in(os.fspath(cache_dir or default_cache_dir()))
        assert p.source is not None  # the order of dialects guarantees it
        library = intarsia_runtime.build(p.source, aim(p.device), cache=cache)
        name = intarsia_runtime.graph_name(p.graph_module, p.signature)
        return replace(p, run=intarsia_runtime.link(p.graph_module, p.source, library, device=p.device, name=name))

    stages = (
        *_aten_stages(partition, aim),
        Stage("lower", "aten", "loops", lambda p: _lower(p, rng, aim)),
        Stage("fuse", "loops", "kernels", fuse),
        Stage("schedule", "kernels", "launches", scheduled),
        Stage("emit", "launches", "source", emit),
        Stage("build", "source", "callable", build),
    )
    return Pipeline(tuple(replace(stage, trusted=True) for stage in stages))


def interpreted(pipeline: Pipeline, dialect: str) -> Pipeline:
    """Return `pipeline` cut after `dialect`, ended by that dialect's interpreter: a rung of the debugging ladder."""
    run = dialect_module(dialect).interpret
    end = Stage("interpret", dialect, "callable", lambda p: replace(p, run=functools.partial(run, p.graph_module)))
    return Pipeline((*pipeline.until(dialect).stages, replace(end, trusted=True)))


def dialect_module(dialect: str) -> ModuleType:
    """Return the module with `verify`, `interpret`, `print_ir` and `parse_ir` of a dialect's graphs."""
    return {
        "torch": intarsia_ir.torch,
        **dict.fromkeys(("effects", "aten"), intarsia_ir.aten),
        "loops": intarsia_loops.loops,
        **dict.fromkeys(("kernels", "launches", "source", "callable"), intarsia_loops.kernels),
    }[dialect]


# the one cache of this process in a folder, so that it is told once when that can't be used
_cache_in = functools.cache(intarsia_runtime.Cache)


def default_cache_dir() -> Path:
    """Return `$INTARSIA_CACHE_DIR`, or a folder of the user's own."""
    return Path(os.environ.get("INTARSIA_CACHE_DIR") or intarsia_runtime.cache_folder_of_user() / "intarsia")


def _aten_stages(policy: Any, aim: Any) -> tuple[Stage, ...]:
    return (
        *[_rewrite(rewrite, "torch") for rewrite in intarsia_rewrites.BEFORE_AUTOGRAD],
        Stage("to_aten", "torch", "effects", _to_aten),
        Stage("functionalize", "effects", "aten", _functionalize),
        *[_rewrite(rewrite, "aten") for rewrite in intarsia_rewrites.ON_ATEN],
        *[graph_pass(r.__name__, "aten", functools.partial(_aimed, r, aim)) for r in intarsia_rewrites.ON_TARGET],
        Stage("partition", "aten", "aten", lambda p: _partition(p, policy)),
    )


def _rewrite(rewrite: Any, dialect: str) -> Stage:
    return graph_pass(rewrite.__name__, dialect, functools.partial(rewrite, check=False))


def _aimed(rewrite: Any, aim: Any, gm: Any) -> Any:
    return rewrite(gm, target=aim(intarsia_ir.aten.accelerator_of(gm)), check=False)


def _recorded(p: Program, r: Any) -> Program:
    return replace(p, graph_module=r.graph_module, signature=r.signature, facts=r.facts)


def _to_aten(p: Program) -> Program:
    intarsia_runtime.prepare(p.inputs)
    graded = any(getattr(spec, "requires_grad", False) for spec in p.signature.outputs)
    signature, table = p.signature if p.signature.inputs else None, intarsia_functionalizer.default_decompositions()
    if not graded and not (torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in p.inputs)):
        front = intarsia_functionalizer.to_aten
    else:
        front, table = intarsia_autodiff.joint_graph, table | intarsia_autodiff.backward_decompositions()
    return _recorded(p, front(p.graph_module, p.inputs, decompositions=table, signature=signature))


def _functionalize(p: Program) -> Program:
    done = intarsia_functionalizer.functionalize(Recorded(p.graph_module, p.signature, p.facts), check=False)
    return replace(_recorded(p, done), guards=done.guards)


def _partition(p: Program, policy: Any) -> Program:
    if p.signature.joint is None:
        return p
    done = intarsia_autodiff.partition(Recorded(p.graph_module, p.signature, p.facts), policy, check=False)
    back, *others = [replace(_recorded(p, half), guards=(), halves=halves) for half, halves in done.pairs()]
    return replace(_recorded(p, done.forward), halves=done.halves, backward=back, others=tuple(others))


def _lower(p: Program, rng: str | None, aim: Any) -> Program:
    device = intarsia_ir.aten.device_of(p.graph_module)
    how: dict[str, Any] = {"deterministic": torch.are_deterministic_algorithms_enabled(), "check": False}
    how["nan_gelu"] = intarsia_runtime.nan_gelu()
    lowered = intarsia_loops.lower(p.graph_module, facts=p.facts, rng=rng, target=aim(device), **how)
    return replace(p, graph_module=lowered, device=device)
