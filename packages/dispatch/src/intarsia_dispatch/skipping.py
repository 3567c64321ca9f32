"""Which code is left alone: that of libraries, what they run again or for each operation, and what is debugged."""

from __future__ import annotations

import bdb
import functools
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from types import CodeType
from typing import Any

import torch
import torch.fx

import intarsia_framehook as framehook

__all__ = [
    "calls_debugger",
    "code_under",
    "debugger_active",
    "is_code_of",
    "is_handler",
    "is_import",
    "is_opaque",
    "is_repeated_later",
    "left_alone",
    "library_code",
]

_DEBUGGER_CALLS = frozenset({"breakpoint", "set_trace"})
_HANDLERS = frozenset({"__torch_function__", "__torch_dispatch__"})
_TAKING_APART = frozenset({"__tensor_flatten__", "__tensor_unflatten__"})
_DEBUGGER_MODULES = ("pydevd", "_pydevd", "debugpy")
_CHECKPOINT = os.path.join(os.path.dirname(torch.__file__), "utils", "checkpoint.py")


def is_code_of(kind: type, code: CodeType) -> bool:
    """Tell whether code is that of a method of a class."""
    members = [member for cls in kind.__mro__ for member in vars(cls).values()]
    return any(getattr(member, "__code__", None) is code for member in members)


def left_alone(graph_module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Return a captured graph that nobody looks at when eager runs it, as for second derivatives: it's no program's."""
    forward: Any = graph_module.forward
    framehook.quiet(forward.__func__.__code__)
    return graph_module


def code_under(
    folders: Iterable[str], *, packages: Iterable[str] = (), but: Iterable[str] = ()
) -> Callable[[CodeType], bool]:
    """Return a predicate: whether code comes from a file below one of `folders`, and below none of `but`.

    Args:
        folders: Such as the folder of torch; or a text that starts with `<`, such as `"<frozen "`, for code that has
            no file.
        packages: Top-level packages whose folders are meant as well, where they are installed; none is imported for it.
        but: Exceptions, such as `torch/nn/modules`.

    Example:
        >>> skip = code_under(["/lib/torch", "<frozen "], but=["/lib/torch/nn"])
        >>> files = "/lib/torch/a.py", "/lib/torch/nn/b.py", "/lib/torchvision/c.py", "<frozen os>", "<stdin>"
        >>> [skip(compile("", file, "exec")) for file in files]
        [True, False, False, True, False]
    """
    inside, outside = tuple(map(_prefix, (*folders, *_folders_of(packages)))), tuple(map(_prefix, but))

    def skips(code: CodeType) -> bool:
        return code.co_filename.startswith(inside) and not code.co_filename.startswith(outside)

    return skips


@functools.cache
def library_code(ours: tuple[str, ...]) -> Callable[[CodeType], bool]:
    """Return a predicate: whether code is a library's: of torch, numpy, the standard library, or packages of ours.

    The layers of torch.nn, and the module that puts one in a checkpoint, are no library in this sense: their `forward`
    is user code in all but name.

    Args:
        ours: Top-level packages: eager calls the backward half of a compiled graph while user code is captured.
    """
    torch_, modules = os.path.dirname(torch.__file__), os.path.join(os.path.dirname(torch.__file__), "nn", "modules")
    wrappers = os.path.join(torch_, "distributed", "algorithms", "_checkpoint")
    in_torch = code_under([torch_, "<frozen ", "<intarsia "], packages=(*ours, "numpy"), but=[modules, wrappers])
    in_library = code_under([sysconfig.get_path("stdlib")], but=[sysconfig.get_path("purelib")])
    # Module.__call__ runs hooks and must stay as it is; what it calls is captured
    plumbing = {os.path.join(modules, "module.py"), os.path.join(modules, "lazy.py")}
    return lambda code: in_torch(code) or in_library(code) or code.co_filename in plumbing


def _folders_of(packages: Iterable[str]) -> list[str]:
    specs = map(find_spec, packages)
    return [os.path.dirname(spec.origin) for spec in specs if spec is not None and spec.origin]


def _prefix(folder: str) -> str:
    return folder if folder.startswith("<") else os.path.join(folder, "")


def is_repeated_later(code: CodeType) -> bool:
    """Whether code runs a function that is run again in the backward pass, where no frame is seen: checkpointing.

    Both runs have to save the same tensors, so the function is left alone in the first one.
    """
    return code.co_filename == _CHECKPOINT


@functools.cache
def _opaque() -> Callable[[CodeType], bool]:
    operators = os.path.join(os.path.dirname(torch.__file__), "_library")
    return code_under(["<intarsia wrapper ", operators], packages=("triton", "numba", "jax", "jaxlib"))


def is_opaque(code: CodeType) -> bool:
    """Whether what code calls is left alone as well: that of other compilers, of operators, of compiled graphs.

    The first look at functions themselves. An operator that a library defines does as the library says; it is called
    by torch's code for such operators, or by a compiled graph; and so do tensors of subclasses that are made of others.
    """
    return code.co_name in _TAKING_APART or _opaque()(code)


def is_import(code: CodeType) -> bool:
    """Whether code imports a module, or is a module's own: it runs once, so nothing beneath it is worth compiling."""
    return code.co_name == "<module>" or code.co_filename.startswith("<frozen importlib")


def is_handler(code: CodeType) -> bool:
    """Whether torch calls code for each operation, with that as an argument: nearly each needs a version."""
    return code.co_name in _HANDLERS


def calls_debugger(code: CodeType) -> bool:
    """Whether code stops in a debugger: people want to see the frame as they wrote it."""
    return not _DEBUGGER_CALLS.isdisjoint(code.co_names)


def debugger_active() -> bool:
    """Whether the trace function of this thread is a debugger's; a coverage tool isn't one."""
    trace = sys.gettrace()
    if trace is None:
        return False
    module = getattr(trace, "__module__", None) or type(trace).__module__
    return isinstance(getattr(trace, "__self__", None), bdb.Bdb) or module.startswith(_DEBUGGER_MODULES)
