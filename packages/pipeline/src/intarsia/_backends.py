"""Backends by name: what turns one captured graph into a callable.

"auto", "cpp" (CPU) and "triton" (CUDA) run the whole pipeline; "eager", "aten", "loops" and "kernels" are the debugging
ladder, each stopping one level later, so the first rung that goes wrong names the guilty layer. Any function
`(gm, example_inputs) -> callable` written for torch.compile is a backend too.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any, Protocol

import torch.fx as fx

import intarsia_ir.torch
import intarsia_runtime
import intarsia_tuner
from intarsia._graph import compile_graph
from intarsia._options import Options
from intarsia._stages import COMPILERS, cache_in, default_cache_dir, default_pipeline, interpreted
from intarsia._stats import Stats
from intarsia.levels import Captured, Half, Kernels, Linked, Loops
from intarsia_dispatch import Counters, ErrorPolicy
from intarsia_ir.choices import instance_of, one_of
from intarsia_ir.errors import InvalidArgumentError, UnsupportedError
from intarsia_ir.pipeline import Pipeline, level_of
from intarsia_ir.records import Signature, Target
from intarsia_ir.where import warn_of_untested, warn_user
from intarsia_rewrites.freezing import frozen
from intarsia_runtime import warm
from intarsia_runtime.report import GraphReport

__all__ = ["GraphCompiler", "UserBackend", "graph_compiler", "list_backends", "predicting", "register_backend"]

UserBackend = Callable[[fx.GraphModule, list[Any]], Callable[..., Any]]
LADDER = {"aten": Half, "loops": Loops, "kernels": Kernels}  # each stops one level later
_WITH_TEXT = frozenset({"target", "fuel", "cache_dir"})  # tables that are told from others by their text
SERVED = {"cpp": ("cpu",), "triton": ("cuda",)}
# entry points that are backends: of our plug-ins, and those that torch.compile finds as well
GROUPS = ("intarsia_backends", "torch_dynamo_backends")
_BUILT_IN = frozenset({"auto", "cpp", "triton", "eager", *LADDER})

_registered: dict[str, UserBackend] = {}


class GraphCompiler(Protocol):
    """Compiles one FX(torch) graph for the values of its inputs."""

    def __call__(
        self, gm: fx.GraphModule, inputs: Sequence[Any], signature: Signature, report: GraphReport | None = None
    ) -> Callable[..., Any]: ...


def register_backend(name: str, backend: UserBackend) -> None:
    """Make `backend` known to `compile(backend=name)`; a later registration of the same name replaces it.

    Raises:
        InvalidArgumentError: `name` is no text or that of a built-in backend, or `backend` can't be called.
    """
    if not isinstance(name, str) or name in _BUILT_IN or not callable(backend):
        raise InvalidArgumentError(f"{name!r} isn't free, or {backend!r} can't be called", code="pipeline.backend")
    _registered[name] = backend


def list_backends() -> list[str]:
    """Return the names that `compile(backend=...)` takes, sorted: ours, registered ones, and those of `GROUPS`."""
    return sorted({*_BUILT_IN, *_registered, *_installed()})


def _installed() -> dict[str, EntryPoint]:
    """Return the backends that distributions name among their entry points."""
    return {e.name: e for group in GROUPS for e in entry_points(group=group) if e.name not in (*_BUILT_IN, "intarsia")}


def graph_compiler(
    backend: str | UserBackend,
    pipeline: Pipeline | None,
    options: Options,
    counters: Counters[Stats],
    policy: ErrorPolicy,
    tables: Mapping[str, Any] = MappingProxyType({}),
) -> GraphCompiler:
    """Return the graph compiler that `compile` was asked for.

    Args:
        backend: A name, or a function of the user's.
        pipeline: Stages of the user's; None: the default ones.
        options: See `Options`.
        counters: Told about each graph.
        policy: Whether a missing C++ compiler is an error.
        tables: Arguments of `default_pipeline`.

    Raises:
        InvalidArgumentError: No backend has this name, or the pipeline or a table has no effect with it or isn't one.
    """
    warn_of_untested()
    if tables:  # what is wrong with them is told here, not at the first call
        default_pipeline(**{"target": Target(), **tables})
    instance_of("pipeline", pipeline, Pipeline, type(None))
    if options.freezing and (pipeline is not None or backend not in ("auto", *SERVED, *LADDER)):
        raise InvalidArgumentError("option freezing is for the default pipeline alone", code="options.value")
    if not callable(backend):
        if not isinstance(backend, str) or not (backend in _BUILT_IN or backend in _registered):
            one_of("backend", backend, tuple(list_backends()), hint="torch.compile's: integration/torch_backends")
            register_backend(backend, _installed()[backend].load())
        backend = _registered.get(backend, backend)
    if callable(backend):
        if pipeline is not None or tables:
            what = "a pipeline" if pipeline is not None else ", ".join(tables)
            raise InvalidArgumentError(
                f"a backend of your own gets the captured graph, so {what} has no effect", code="pipeline.backend"
            )
        return functools.partial(_user_backend, functools.partial(intarsia_runtime.compile_by, backend))
    chosen = pipeline and _checked(pipeline, backend, tables)
    if backend == "eager":
        return functools.partial(_user_backend, intarsia_runtime.run_as_written)

    def compile_with_pipeline(
        gm: fx.GraphModule, inputs: Sequence[Any], signature: Signature, report: GraphReport | None = None
    ) -> Callable[..., Any]:
        if chosen is None and intarsia_ir.torch.is_on_meta(gm, inputs):
            return intarsia_runtime.run_as_written(gm, inputs)
        intarsia_ir.torch.check_devices(gm, inputs, backend, SERVED.get(backend, ("cpu", "cuda")))
        report = report or GraphReport()
        stages = chosen or _default(backend, options, counters, policy, report, tables)
        if report.weights:
            stages = frozen(stages, report.weights, report.refuse, intarsia_runtime.packed_by_library())
        store = _store(stages, chosen is not None, options, report, tables)
        return compile_graph(gm, inputs, signature, stages, options, counters, report, store)

    return compile_with_pipeline


def _user_backend(
    compile_one: Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]],
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    signature: Signature,
    report: GraphReport | None = None,
) -> Callable[..., Any]:
    return compile_one(gm, inputs)


def _checked(pipeline: Pipeline, backend: str, tables: Mapping[str, Any]) -> Pipeline:
    """Return a user's pipeline as far as the rung of the ladder goes, limited by `fuel`."""
    if others := [name for name in tables if name != "fuel"]:
        raise InvalidArgumentError(
            f"a pipeline of your own was made with tables of its own, so {', '.join(others)} has no effect",
            code="pipeline.backend",
            hints=("give it to default_pipeline",),
        )
    first, last = pipeline.stages[:1], pipeline.stages[-1:]
    if not first or (first[0].takes, level_of(last[0].gives)) != (Captured, Linked):
        raise InvalidArgumentError("a pipeline must lead from Captured to Linked", code="pipeline.order")
    pipeline = pipeline.limit(tables.get("fuel", {}))
    return interpreted(pipeline, LADDER[backend]) if backend in LADDER else pipeline


def _default(
    backend: str,
    options: Options,
    counters: Counters[Stats],
    policy: ErrorPolicy,
    report: GraphReport,
    tables: Mapping[str, Any],
) -> Pipeline:
    target = tables.get("target") or intarsia_runtime.detect_target()
    folder, cost = tables.get("cache_dir") or default_cache_dir(), predicting(options, tables)
    tuner = intarsia_tuner.tuner_in(folder, cache_in(folder)) if options.max_autotune else None
    pipeline = default_pipeline(**{"tuner": tuner, **tables, "target": target, "rng": options.rng, "cost": cost})
    if backend in LADDER:
        return interpreted(pipeline, LADDER[backend])
    if target.compiler:
        return pipeline
    missing = "no C++ compiler was found; install g++ (or clang++) to get compiled kernels"
    if policy.raises():
        raise UnsupportedError(missing, code="runtime.no_compiler", hints=("on Debian: apt-get install g++",))
    report.note = missing + "; running ATen operations instead"
    counters.add(fallbacks=1)
    _warn_once(report.note)
    return interpreted(pipeline, Half)


def predicting(options: Options, tables: Mapping[str, Any]) -> Any:
    """Return what predicts times: the cost model that was given, else by the calibration in the cache, if it may."""
    is_on = options.calibration and os.environ.get("INTARSIA_CALIBRATION") != "0"
    folder = (tables.get("cache_dir") or default_cache_dir()) if is_on else None
    return tables.get("cost") or intarsia_tuner.Predictor(folder)


def _store(
    stages: Pipeline, is_users: bool, options: Options, report: GraphReport, tables: Mapping[str, Any]
) -> warm.PlanStore | None:
    """Return the finished plans of these stages; None, and a note why, where nothing tells what they do."""
    if not options.warm_start or os.environ.get("INTARSIA_WARM_START") == "0" or stages.stages[-1].name != "build":
        return None
    opaque = ["the pipeline"] * is_users + sorted(tables.keys() - _WITH_TEXT)
    if opaque or options.verify_each or options.dump_dir or options.max_autotune or options.freezing:
        report.warm = f"off: {', '.join(opaque)} of yours" if opaque else "off: the passes are asked for"
        return None
    how = (tables.get("target") or intarsia_runtime.detect_target(), sorted(tables.get("fuel", {}).items()), options)
    return warm.PlanStore(cache_in(tables.get("cache_dir")), (warm.fingerprint(COMPILERS), repr(how)))


_warn_once = functools.cache(functools.partial(warn_user, category=RuntimeWarning))
