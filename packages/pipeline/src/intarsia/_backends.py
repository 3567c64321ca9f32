"""Backends by name: what turns one captured graph into a callable.

"auto", "cpp" (CPU) and "triton" (CUDA) run the whole pipeline; "eager", "aten", "loops" and "kernels" are the debugging
ladder, each stopping one level later, so the first rung that goes wrong names the guilty layer. Any function
`(gm, example_inputs) -> callable` written for torch.compile is a backend too.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
import torch.fx as fx

import intarsia_runtime
from intarsia._graph import GraphReport, compile_graph
from intarsia._options import Options, one_of
from intarsia._pipeline import Pipeline
from intarsia._stages import default_pipeline, interpreted
from intarsia._stats import Counters
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.records import Signature, Target

__all__ = ["GraphCompiler", "UserBackend", "graph_compiler", "list_backends", "register_backend"]

UserBackend = Callable[[fx.GraphModule, list[Any]], Callable[..., Any]]
LADDER = ("eager", "aten", "loops", "kernels")

_registered: dict[str, UserBackend] = {}


class GraphCompiler(Protocol):
    """Compiles one FX(torch) graph for the values of its inputs."""

    def __call__(
        self, gm: fx.GraphModule, inputs: Sequence[Any], signature: Signature, report: GraphReport | None = None
    ) -> Callable[..., Any]: ...


def register_backend(name: str, backend: UserBackend) -> None:
    """Make `backend` known to `compile(backend=name)`; a later registration of the same name replaces it."""
    _registered[name] = backend


def list_backends() -> list[str]:
    """Return the names that `compile(backend=...)` takes, sorted."""
    return sorted(("auto", "cpp", "triton", *LADDER, *_registered))


def graph_compiler(
    backend: str | UserBackend, pipeline: Pipeline | None, options: Options, counters: Counters
) -> GraphCompiler:
    """Return the graph compiler that `compile` was asked for.

    Raises:
        InvalidArgumentError: No backend has this name.
    """
    if callable(backend):
        return functools.partial(_user_backend, backend)
    one_of("backend", backend, tuple(list_backends()))
    if backend in _registered:
        return functools.partial(_user_backend, _registered[backend])
    if backend == "eager":
        return functools.partial(_user_backend, intarsia_runtime.run_as_written)

    def compile_with_pipeline(
        gm: fx.GraphModule, inputs: Sequence[Any], signature: Signature, report: GraphReport | None = None
    ) -> Callable[..., Any]:
        _refuse_inputs(backend, inputs)
        chosen = pipeline or _pipeline_of(backend, intarsia_runtime.detect_target(), options)
        return compile_graph(gm, inputs, signature, chosen, options, counters, report)

    return compile_with_pipeline


def _user_backend(
    backend: UserBackend,
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    signature: Signature,
    report: GraphReport | None = None,
) -> Callable[..., Any]:
    return backend(gm, list(inputs))


def _pipeline_of(backend: str, target: Target, options: Options) -> Pipeline:
    pipeline = default_pipeline(target)
    if backend in LADDER:
        return interpreted(pipeline, backend)
    if target.compiler:
        return pipeline
    missing = "no C++ compiler was found; install g++ (or clang++) to get compiled kernels"
    if options.on_error == "raise":
        raise UnsupportedError(
            missing, code="runtime.no_compiler", hints=("install g++, for example from Debian's g++",)
        )
    _warn_once(missing + "; running ATen operations instead")
    return interpreted(pipeline, "aten")


@functools.cache
def _warn_once(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=2)


def _refuse_inputs(backend: str, inputs: Sequence[Any]) -> None:
    served = {"cpp": {"cpu"}, "triton": {"cuda"}}.get(backend, {"cpu", "cuda"})
    others = {i.device.type for i in inputs if isinstance(i, torch.Tensor) and i.dim()} - served
    if others:
        raise UnsupportedError(
            f"a tensor is on {', '.join(sorted(others))}, and backend {backend!r} serves {', '.join(sorted(served))}",
            code="pipeline.device",
            hints=("move the model and its inputs, or use backend='eager'",),
        )
