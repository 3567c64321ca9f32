"""`script.py::function`: a function of a script with inputs, made anew whenever they are asked for.

Inputs come from the script: a function `<function>_inputs`, or `inputs`, returns a tuple of positional arguments, a
dictionary of keyword arguments, or a pair of both; or a list of these, one for each call. A function that needs no
arguments needs no inputs. Random numbers start from the same seed each time.
"""

from __future__ import annotations

import copy
import difflib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from intarsia_command.exits import of_the_program
from intarsia_ir.errors import InvalidArgumentError

__all__ = ["Arguments", "Program", "load", "load_attribute", "load_script"]

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Program:
    """A function with inputs.

    Args:
        name: For messages: `script.py::function`.
        function: The function or module, as written.
        calls: Returns new arguments of each call, positional and by keyword: equal ones each time.
    """

    name: str
    function: Callable[..., Any]
    calls: Callable[[], list[Arguments]]

    def fresh_function(self) -> Callable[..., Any]:
        """Return the function; of a module a copy, with state of its own."""
        return copy.deepcopy(self.function) if isinstance(self.function, torch.nn.Module) else self.function


def load(target: str) -> Program:
    """Return the program that `script.py::function` names.

    Raises:
        InvalidArgumentError: `command.script`, `command.function`, `command.inputs`: there is no such script or
            function, or nothing says what it is called with.
    """
    path, _, name = target.partition("::")
    if not name:
        raise InvalidArgumentError(
            f"{target!r} names no function", code="command.function", hints=(f"write {path}::function",)
        )
    module = load_script(path)
    value = getattr(module, name, None)
    if not callable(value):
        known = [n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == module.__name__]
        near = difflib.get_close_matches(name, known, 1) or known
        raise InvalidArgumentError(
            f"{path} has no function {name!r}",
            code="command.function",
            hints=(f"did you mean {path}::{near[0]}?",) if near else (),
        )
    function = _as_written(value)
    return Program(target, function, _inputs_of(module, name, function, target))


def load_attribute(target: str, name: str) -> Any:
    """Return what the script of `script.py::function` calls `name`.

    Raises:
        InvalidArgumentError: `command.function`: nothing.
    """
    path = target.partition("::")[0]
    module = load_script(path)
    if not hasattr(module, name):
        raise InvalidArgumentError(f"{path} has nothing called {name!r}", code="command.function")
    return getattr(module, name)


def load_script(path: str) -> ModuleType:
    """Return the module of a script, run once in this process.

    Raises:
        InvalidArgumentError: `command.script`: there is no such file, or it is no Python.
    """
    file = Path(path)
    if not file.is_file() or file.suffix != ".py":
        raise InvalidArgumentError(
            f"there is no script {path!r}", code="command.script", hints=("name a file that ends in .py",)
        )
    loaded = sys.modules.get(file.stem)
    if loaded is not None and getattr(loaded, "__file__", None) == str(file.resolve()):
        return loaded
    spec = importlib.util.spec_from_file_location(file.stem, file.resolve())
    assert spec is not None and spec.loader is not None  # for a file that ends in .py there is one
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.resolve().parent))
    sys.modules[file.stem] = module
    with of_the_program(path):
        spec.loader.exec_module(module)
    return module


def _as_written(value: Any) -> Callable[..., Any]:
    """Return a function or module that the script has compiled as it was before that."""
    if "_orig_mod" in getattr(value, "_modules", {}):
        return value._orig_mod  # type: ignore[no-any-return]
    return value.__wrapped__ if getattr(value, "_intarsia_compiled", False) else value  # type: ignore[no-any-return]


def _inputs_of(
    module: ModuleType, name: str, function: Callable[..., Any], target: str
) -> Callable[[], list[Arguments]]:
    maker = getattr(module, f"{name}_inputs", None) or getattr(module, "inputs", None)
    if maker is None and not _takes_nothing(function):
        raise InvalidArgumentError(
            f"nothing says what {target} is called with",
            code="command.inputs",
            hints=(f"add a function `{name}_inputs()` to the script that returns the arguments as a tuple",),
        )

    if maker is not None and not callable(maker):
        raise InvalidArgumentError(
            f"what {target} is called with is a {type(maker).__name__}, not a function",
            code="command.inputs",
            hints=(f"make {name}_inputs a function of the script that returns it: each call takes new arguments",),
        )

    def make() -> list[Arguments]:
        torch.manual_seed(0)
        if maker is None:
            return [((), {})]
        made = None
        with of_the_program(f"the inputs of {target}"):
            made = maker()
        if made == []:
            raise InvalidArgumentError(
                f"the inputs of {target} are an empty list: no call",
                code="command.inputs",
                hints=("a list has the arguments of each call; return a tuple for one",),
            )
        return [_arguments(one) for one in made] if isinstance(made, list) else [_arguments(made)]

    return make


def _arguments(made: Any) -> Arguments:
    match made:
        case (tuple() as args, dict() as kwargs):
            return args, kwargs
        case tuple():
            return made, {}
        case dict():
            return (), made
    return (made,), {}


def _takes_nothing(function: Callable[..., Any]) -> bool:
    called = function.forward if isinstance(function, torch.nn.Module) else function
    parameters = inspect.signature(called).parameters.values()
    needed = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    )
    return not any(p.default is p.empty and p.kind in needed for p in parameters)
