"""The default pipelines: which package does which step, for a target."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

import intarsia_autodiff
import intarsia_cpp
import intarsia_functionalizer
import intarsia_fuser
import intarsia_ir.aten
import intarsia_lowering
import intarsia_rewrites
import intarsia_runtime
import intarsia_scheduler
import intarsia_triton
import intarsia_tuner
from intarsia.levels import (
    Captured,
    Emitted,
    Functional,
    Half,
    Kernels,
    Launched,
    Linked,
    Loops,
    Partition,
    Recorded,
    dialect_of,
)
from intarsia_ir.choices import instance_of, one_of
from intarsia_ir.errors import blaming
from intarsia_ir.links import Links
from intarsia_ir.pipeline import Pipeline, Planned, Stage, graph_pass
from intarsia_ir.records import Target
from intarsia_loops import Contract
from intarsia_lowering.writing import Lowering, Lowerings
from intarsia_rewrites import Pattern
from intarsia_runtime import warm

__all__ = ["TABLES", "cache_in", "default_cache_dir", "default_pipeline", "interpreted"]

EMITTERS: Mapping[str, Any] = MappingProxyType({"cpu": intarsia_cpp.emit_unit, "cuda": intarsia_triton.emit_unit})

# the packages whose code decides what becomes of a captured graph
_NAMES = "ir shapes recorder functionalizer rewrites autodiff loops lowering fuser scheduler tuner cpp triton runtime"
COMPILERS = ("intarsia", *(f"intarsia_{name}" for name in _NAMES.split()))


def default_pipeline(
    target: Target | None = None,
    *,
    decompositions: Mapping[Any, Any] = MappingProxyType({}),
    lowerings: Lowerings = MappingProxyType({}),
    patterns: Sequence[Pattern] = (),
    policy: Any = None,
    cost: Any = None,
    partition: Any = None,
    cache_dir: str | Path | None = None,
    rng: str | None = None,
    schedule: Any = None,
    tuner: Any = None,
    links: Links | None = None,
    bucket_bytes: int = 0,
    fuel: Mapping[str, int] = MappingProxyType({}),
    emitters: Mapping[str, Any] = EMITTERS,
) -> Pipeline:
    """Return the stages from FX(torch) to a callable; where gradients are needed, to a pair.

    Args:
        target: What to compile for; None asks the machine. Graphs on another device are compiled for that one, asked.
        decompositions: Overload -> function of the same parameters to record in its place, over the default tables; one
            that returns NotImplemented leaves its op whole for these arguments, None does always.
        lowerings: Overload -> how it becomes loop nests, over the built-in rows; see `intarsia_lowering.lower`.
        patterns: Replaced in FX(aten), by a stage `replace_patterns` that follows the other rewrites.
        policy: Fusion policy or plan (for several graphs, `intarsia_fuser.Replay`); None is `intarsia_fuser.Greedy()`.
        cost: Cost model of fusion, or an `intarsia_tuner.Predictor`; None is `Predictor()`: for policies that decide by
            predicted times what the schedule makes of kernels, for others the roofline of the target.
        partition: What is saved for the backward pass: a policy or plan of `intarsia_autodiff`; None is `MinCut()`.
        cache_dir: Folder of the on-disk cache; None is the user's own.
        rng: `"eager"`: random ops draw eager's numbers; `"philox"`: kernels make others, of the same distributions.
            None: the first on the CPU, the second on a GPU.
        schedule: What decides how kernels run; None is `intarsia_scheduler.Measured()`, which merges no kernels where
            the fusion policy is `NoFusion()`: then there are as many as it planned.
        tuner: Measures what that decides, as `intarsia_tuner.Tuner` does: `(kernels, target, policy) -> policy`. None:
            nothing is measured.
        links: What joins the processes whose collectives are in graphs; None: what the target's table says.
        bucket_bytes: Collectives are sent together up to so many bytes; 0: each alone, so that a process in eager
            meets them. Every process must be given the same.
        fuel: Name of a stage -> how many of its rewrites or decisions it carries out in each graph; others are free.
            `Pipeline.counting` names the stages that count.
        emitters: `(intarsia_loops.launches.Launches) -> KernelSource` by the kind of device. For another kind, replace
            the stage `build` as well.

    Raises:
        InvalidArgumentError: `options.value`: nothing prints kernels for the target's kind of device; `aten.table`:
            a key of a table is no overload; `pipeline.fuel`: no stage of this name counts, or the number is none.

    Example:
        >>> from intarsia_fuser import NoFusion
        >>> pipeline = default_pipeline(policy=NoFusion())
        >>> default_pipeline(fuel={"lower": 0}).counting[-3:]
        ('lower', 'fuse', 'schedule')
    """
    instance_of("target", target, Target, type(None))
    instance_of("links", links, Links, type(None))
    instance_of("bucket_bytes", bucket_bytes, int)
    for pattern in patterns:
        instance_of("one of patterns", pattern, Pattern)
    given = target or intarsia_runtime.detect_target()
    rows = intarsia_ir.aten.checked_table("decompositions", decompositions)
    rows = {op: function and blaming(f"the decomposition of {op}", function) for op, function in rows.items()}
    intarsia_ir.aten.checked_table("lowerings", lowerings, Lowering)
    one_of("the device of a target", given.device, tuple(emitters))

    aim: Any = lambda d: given if d.type == given.device else intarsia_runtime.detect_target(d)  # noqa: E731

    def fuse(p: Loops, fuel: int | None) -> Planned:
        how: dict[str, Any] = {"policy": policy, "target": p.contract.target, "fuel": fuel, "check": False}
        plan = intarsia_fuser.plan(p.graph_module, cost=intarsia_tuner.cost_for(policy, how["target"], cost), **how)
        kernels = intarsia_fuser.apply(p.graph_module, plan, check=False)
        return Planned(Kernels(kernels, p.contract, apart=plan.name == intarsia_fuser.NoFusion().name), plan)

    def scheduled(p: Kernels, fuel: int | None) -> Planned:
        how = schedule or intarsia_scheduler.Measured(merges=not p.apart)
        how = tuner(p.graph_module, p.contract.target, how) if tuner is not None else how
        done = intarsia_scheduler.scheduled(p.graph_module, p.contract.target, how, fuel=fuel, check=False)
        return Planned(Launched(p.graph_module, p.contract, done.launches), done.plan)

    def emit(p: Launched) -> Emitted:
        return Emitted(p.graph_module, p.contract, p.launches, emitters[p.contract.target.device](p.launches))

    # graphs that calls hold: policies and plans are for the graph around them
    own: dict[str, Any] = {"lowerings": lowerings, "cache_dir": cache_dir, "fuel": fuel, "emitters": emitters}
    bodies = functools.partial(default_pipeline, target, patterns=patterns, rng=rng, **own)
    lower = functools.partial(_lower, rng=rng, aim=aim, lowerings=lowerings, bodies=bodies)
    functionalize = functools.partial(intarsia_functionalizer.functionalize, check=False)
    overlap = intarsia_rewrites.overlap_collectives
    exchange: dict[str, Any] = {"ranks": intarsia_runtime.group_size, "links": links, "bucket_bytes": bucket_bytes}
    stages = (
        *[_rewrite(rewrite, Captured) for rewrite in intarsia_rewrites.BEFORE_AUTOGRAD],
        Stage("to_aten", Captured, Recorded, functools.partial(_to_aten, rows=rows), counts=True),
        Stage("functionalize", Recorded, Functional, functionalize),
        *[_rewrite(rewrite, Functional) for rewrite in intarsia_rewrites.ON_ATEN],
        *([_rewrite(intarsia_rewrites.replace_patterns, Functional, patterns=patterns)] if patterns else []),
        *[graph_pass(r.__name__, Functional, functools.partial(_aimed, r, aim)) for r in intarsia_rewrites.ON_TARGET],
        Stage("partition", Functional, Partition[Half], functools.partial(_partition, policy=partition), counts=True),
        graph_pass(overlap.__name__, Half, functools.partial(_aimed, overlap, aim, **exchange)),
        Stage("lower", Half, Loops, lower, counts=True),
        Stage("fuse", Loops, Kernels, fuse, counts=True),
        Stage("schedule", Kernels, Launched, scheduled, counts=True),
        Stage("emit", Launched, Emitted, emit),
        Stage("build", Emitted, Linked, lambda p: warm.finish(warm.buildable(p), cache_in(cache_dir))),
    )
    return Pipeline(tuple(replace(stage, trusted=True) for stage in stages)).limit(fuel)


# what `compile` takes of these and hands on; how numbers are drawn is an option there
TABLES = tuple(name for name in inspect.signature(default_pipeline).parameters if name != "rng")


def interpreted(pipeline: Pipeline, level: type) -> Pipeline:
    """Return `pipeline` cut after `level`, ended by that level's interpreter: a rung of the debugging ladder."""
    run = torch.no_grad()(dialect_of(level).interpret)  # as kernels run: what needs gradients has a backward pass

    def interpret(p: Any) -> Linked:
        known = getattr(p, "contract", p)
        return Linked(functools.partial(run, p.graph_module), known.signature, known.guards)

    end = Stage("interpret", level, Linked, interpret, trusted=True)
    return Pipeline((*pipeline.until(level).stages, end))


def cache_in(folder: str | Path | None) -> intarsia_runtime.Cache:
    """Return the one cache of this process in a folder, so that it is told once when that can't be used."""
    return _cache_in(os.fspath(folder or default_cache_dir()))


_cache_in = functools.cache(intarsia_runtime.Cache)


def default_cache_dir() -> Path:
    """Return `$INTARSIA_CACHE_DIR`, or a folder of the user's own."""
    return Path(os.environ.get("INTARSIA_CACHE_DIR") or intarsia_runtime.cache_folder_of_user() / "intarsia")


def _rewrite(rewrite: Any, level: type, **arguments: Any) -> Stage:
    return graph_pass(rewrite.__name__, level, functools.partial(rewrite, check=False, **arguments))


def _aimed(rewrite: Any, aim: Any, gm: Any, fuel: int | None = None, **more: Any) -> Any:
    how: dict[str, Any] = {"fuel": fuel, "check": False, **more}
    if rewrite is intarsia_rewrites.prefer_channels_last:
        how["dtypes"] = intarsia_runtime.convolved_by_matrix_units()
    return rewrite(gm, target=aim(intarsia_ir.aten.accelerator_of(gm)), **how)


def _to_aten(p: Captured, fuel: int | None, rows: Mapping[Any, Any]) -> Recorded:
    intarsia_runtime.prepare(p.inputs)
    graded = any(getattr(spec, "requires_grad", False) for spec in p.signature.outputs)
    signature, table = p.signature if p.signature.inputs else None, intarsia_functionalizer.default_decompositions()
    given = any(getattr(x, "requires_grad", False) for x in (*p.inputs, *p.signature.inputs))
    if not graded and not (torch.is_grad_enabled() and given):
        front: Any = intarsia_functionalizer.to_aten
    else:
        front, table = intarsia_autodiff.joint_graph, table | intarsia_autodiff.backward_decompositions()
    table = {op: function for op, function in {**table, **rows}.items() if function is not None}
    recorded: Recorded = front(p.graph_module, p.inputs, decompositions=table, signature=signature, fuel=fuel)
    return recorded


def _partition(p: Functional, fuel: int | None, policy: Any) -> Partition[Half] | Planned:
    if p.signature.joint is None:
        return Partition(Half(p.graph_module, p.signature, p.facts, p.guards))
    done = intarsia_autodiff.partition(p, policy, fuel=fuel, check=False)
    return Planned(done.partition, done.plan)


def _lower(p: Half, fuel: int | None, rng: str | None, aim: Any, lowerings: Lowerings, bodies: Any) -> Loops:
    device = intarsia_ir.aten.device_of(p.graph_module)
    how: dict[str, Any] = {"deterministic": torch.are_deterministic_algorithms_enabled(), "fuel": fuel}
    how |= {"nan_gelu": intarsia_runtime.nan_gelu(), "lowerings": lowerings, "check": bool(lowerings)}
    gm = intarsia_runtime.with_bodies(p, bodies)
    lowered = intarsia_lowering.lower(gm, facts=p.facts, rng=rng, target=aim(device), **how)
    return Loops(lowered, Contract(p.signature, p.guards, aim(device), device))
