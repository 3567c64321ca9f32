"""`compile` and `explain`: the two functions that most people use."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

import intarsia_runtime
from intarsia._backends import UserBackend, graph_compiler
from intarsia._explain import Explanation, GraphSummary, summarise
from intarsia._frames import make_dispatcher
from intarsia._graph import GraphReport
from intarsia._options import Options
from intarsia._pipeline import Pipeline
from intarsia._session import COUNTERS, stats
from intarsia_dispatch import CompiledModule, ErrorPolicy, FrameEvent, configure_logging, difference
from intarsia_ir.choices import one_of
from intarsia_ir.errors import InvalidArgumentError

__all__ = ["compile", "explain"]

Function = Callable[..., Any]


def compile(
    fn: Function | None = None,
    *,
    backend: str | UserBackend = "auto",
    mode: str = "default",
    fullgraph: bool = False,
    dynamic: bool | None = None,
    pipeline: Pipeline | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """Return `fn` compiled; the keywords mean what they mean in torch.compile.

    Args:
        fn: A function or nn.Module; None makes a decorator.
        backend: `"auto"`, `"cpp"`, a rung of the debugging ladder (`"eager"`, `"aten"`, `"loops"`, `"kernels"`), a
            registered name, or any `(gm, example_inputs) -> callable`.
        mode: `"default"`; `"reduce-overhead"` is short for the option `cuda_graphs`; `"max-autotune"` does the same so
            far, with a warning.
        fullgraph: Raise instead of breaking the graph, and when the one graph can't be compiled.
        dynamic: None: sizes are constants at the first call, and a size or number that changes is a symbol from then
            on; True: all sizes are symbols at once; False: none is, whatever is marked.
        pipeline: Stages to use instead of the default ones, as far as the rung of the ladder goes; not for a backend of
            your own, which gets the captured graph.
        options: See `intarsia.Options`; an unknown key raises and names the nearest one.

    Returns:
        A function; for a module, a module that shares its parameters and keeps it as `_orig_mod`.

    Raises:
        InvalidArgumentError: An argument has a value that it can't have.

    Example:
        >>> import intarsia
        >>> @intarsia.compile
        ... def f(x):
        ...     return torch.relu(x) + 1
        >>> f(torch.tensor([-1.0, 2.0]))
        tensor([1., 3.])
    """
    keywords = {name: value for name, value in locals().items() if name != "fn"}
    if fn is None:
        return functools.partial(compile, **keywords)
    if isinstance(fn, staticmethod | classmethod):  # in the body of a class, below our decorator
        return type(fn)(compile(fn.__func__, **keywords))
    if not callable(fn):
        raise InvalidArgumentError(f"a function or module is needed, not {fn!r}", code="compile.callable")
    parsed = _check(mode, fullgraph, dynamic, options)
    configure_logging(os.environ.get("INTARSIA_LOGS", ""))
    policy = ErrorPolicy(parsed.on_error, fullgraph)
    compile_one = graph_compiler(backend, pipeline, parsed, COUNTERS, policy)
    call = make_dispatcher(compile_one, parsed, policy, dynamic=dynamic).compile(fn)
    return CompiledModule(fn, call, functools.partial(compile, **keywords)) if isinstance(fn, torch.nn.Module) else call


def explain(fn: Function, **keywords: Any) -> Callable[..., Explanation]:
    """Return a function that compiles and runs `fn` on its arguments and tells what happened.

    Args:
        fn: A function or nn.Module.
        keywords: As for `compile`.

    Example:
        >>> import intarsia
        >>> explanation = intarsia.explain(lambda x: torch.sin(x) + 1)(torch.ones(3))
        >>> len(explanation.graphs), len(explanation.graphs[0].kernels), len(explanation.breaks)
        (1, 1, 0)
    """
    dynamic, fullgraph = keywords.pop("dynamic", None), keywords.pop("fullgraph", False)
    parsed = _check(keywords.pop("mode", "default"), fullgraph, dynamic, keywords.pop("options", None))
    backend, pipeline = keywords.pop("backend", "auto"), keywords.pop("pipeline", None)
    if keywords:
        raise InvalidArgumentError(f"unknown keyword {next(iter(keywords))!r}", code="compile.keyword")
    policy = ErrorPolicy(parsed.on_error, fullgraph)
    compile_one = graph_compiler(backend, pipeline, parsed, COUNTERS, policy)

    def run(*args: Any, **kwargs: Any) -> Explanation:
        graphs: list[GraphSummary] = []
        events: list[FrameEvent] = []

        def on_graph(report: GraphReport) -> None:
            graphs.append(summarise(report))

        dispatcher = make_dispatcher(
            compile_one, parsed, policy, dynamic=dynamic, on_event=events.append, on_graph=on_graph
        )
        before = stats()
        dispatcher.compile(fn)(*args, **kwargs)
        return Explanation(tuple(graphs), tuple(events), difference(stats(), before))

    return run


def _check(mode: str, fullgraph: bool, dynamic: bool | None, options: Mapping[str, Any] | None) -> Options:
    one_of("dynamic", dynamic, (None, True, False))
    one_of("fullgraph", fullgraph, (True, False))
    return Options.parse(options, intarsia_runtime.mode_options(mode))
