"""`compile` and `explain`: the two functions that most people use."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch

import intarsia_runtime
from intarsia._backends import GraphCompiler, UserBackend, graph_compiler, predicting
from intarsia._frames import make_dispatcher
from intarsia._options import Options
from intarsia._session import COUNTERS, log_as_asked, stats
from intarsia._stages import TABLES
from intarsia_dispatch import CompiledModule, ErrorPolicy, difference, without_wrapper
from intarsia_ir.choices import one_of, refuse_unknown
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.pipeline import Pipeline
from intarsia_report import Explanation, Watching, traced_in

__all__ = ["compile", "compile_module_", "explain"]

Function = Callable[..., Any]
Module = TypeVar("Module", bound=torch.nn.Module)


def compile(
    fn: Function | None = None,
    *,
    backend: str | UserBackend = "auto",
    mode: str | None = None,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    pipeline: Pipeline | None = None,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
    **tables: Any,
) -> Any:
    """Return `fn` compiled; the keywords mean what they mean in torch.compile.

    Args:
        fn: A function or nn.Module; None makes a decorator.
        backend: `"auto"`, `"cpp"`, a rung of the debugging ladder (`"eager"`, `"aten"`, `"loops"`, `"kernels"`), a
            registered or installed name (`list_backends`), or any `(gm, example_inputs) -> callable`, which gets real
            tensors and parameters, or fake ones if it has an attribute `takes_fakes`.
        mode: None or `"default"`; `"reduce-overhead"` is short for the option `cuda_graphs`; `"max-autotune"` for
            that and `max_autotune`, `"max-autotune-no-cudagraphs"` for the latter alone.
        fullgraph: Raise instead of breaking the graph, and when the one graph can't be compiled.
        dynamic: None: sizes are constants at the first call, and a size or number that changes is a symbol from then
            on; True: all sizes are symbols at once; False: none is, whatever is marked.
        pipeline: Stages to use instead of the default ones, as far as the rung of the ladder goes; not for a backend of
            your own, which gets the captured graph.
        options: See `intarsia.Options`; an unknown key raises and names the nearest one.
        disable: Return `fn` as it is, for comparison.
        tables: Arguments of `intarsia.default_pipeline`, which has their meaning: `target`, `decompositions`,
            `lowerings`, `patterns`, `policy`, `cost`, `partition`, `schedule`, `tuner`, `fuel`, `emitters`,
            `cache_dir`; beside a `pipeline` only `fuel`. `model` is torch.compile's name of `fn`; any other raises and
            names the nearest.

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
    if fn is None:
        fn = tables.pop("model", None)  # torch.compile's name of it
    values = (backend, mode, fullgraph, dynamic, pipeline, options, disable)
    keywords = dict(zip(_KEYWORDS, values, strict=True)) | tables
    compile_one, parsed, policy = _parts(keywords)
    if fn is None:
        return functools.partial(compile, **keywords)
    if isinstance(fn, staticmethod | classmethod):  # in the body of a class, below our decorator
        return type(fn)(compile(fn.__func__, **keywords))
    if not callable(fn):
        raise InvalidArgumentError(f"a function or module is needed, not {fn!r}", code="compile.callable")
    if disable:
        return fn
    log_as_asked()
    watching = traced_in(os.environ.get("INTARSIA_TRACE", ""), predicting(parsed, tables))
    compile_call = make_dispatcher(compile_one, parsed, policy, dynamic=dynamic, watching=watching).compile
    if isinstance(fn := without_wrapper(fn), torch.nn.Module):
        again = functools.partial(compile, **keywords)
        return CompiledModule(fn, compile_call, again, functools.partial(compile_call, varying=True))
    return compile_call(fn)


def compile_module_(module: Module, **keywords: Any) -> Module:
    """Have the calls of `module` run compiled, in place, and return it: its class and the keys of its state stay.

    Args:
        module: What calls it calls the compiled one from now on; a copy or a pickle is not compiled.
        keywords: As for `compile`; with `disable=True` it runs as it was written again.

    Example:
        >>> import intarsia
        >>> model = intarsia.compile_module_(torch.nn.Linear(2, 2))
        >>> type(model).__name__, list(model.state_dict()), model(torch.ones(3, 2)).shape
        ('Linear', ['weight', 'bias'], torch.Size([3, 2]))
    """
    module._compiled_call_impl = compile(module._call_impl, **keywords)
    return module


def explain(fn: Function, **keywords: Any) -> Callable[..., Explanation]:
    """Return a function that compiles and runs `fn` on its arguments and tells what happened.

    It may be called again: what the calls before have compiled is used where it fits, as by `compile`.

    Args:
        fn: A function or nn.Module.
        keywords: As for `compile`.

    Example:
        >>> import intarsia
        >>> explanation = intarsia.explain(lambda x: torch.sin(x) + 1)(torch.ones(3))
        >>> len(explanation.graphs), len(explanation.graphs[0].kernels), len(explanation.breaks)
        (1, 1, 0)
    """
    compile_one, parsed, policy = _parts(keywords)
    watching = Watching(predicting(parsed, keywords))
    made = make_dispatcher(compile_one, parsed, policy, dynamic=keywords.get("dynamic"), watching=watching)
    compiled = made.compile(fn)

    def run(*args: Any, **kwargs: Any) -> Explanation:
        before = stats()
        watching.forget()
        # the call comes first: keywords are evaluated in order
        return watching.explanation(result=compiled(*args, **kwargs), stats=difference(stats(), before))

    return run


_KEYWORDS = ("backend", "mode", "fullgraph", "dynamic", "pipeline", "options", "disable")


def _parts(given: Mapping[str, Any]) -> tuple[GraphCompiler, Options, ErrorPolicy]:
    """Return what the keywords of `compile` ask for, checked."""
    refuse_unknown("keyword", given, (*_KEYWORDS, *TABLES), code="compile.keyword")
    one_of("dynamic", given.get("dynamic"), (None, True, False))
    one_of("fullgraph", given.get("fullgraph", False), (True, False))
    one_of("disable", given.get("disable", False), (True, False))
    options = Options.parse(given.get("options"), intarsia_runtime.mode_options(given.get("mode")))
    policy = ErrorPolicy(options.on_error, given.get("fullgraph", False))
    backend, pipeline = given.get("backend", "auto"), given.get("pipeline")
    tables = {name: given[name] for name in TABLES if name in given}
    return graph_compiler(backend, pipeline, options, COUNTERS, policy, tables), options, policy
