"""Calls of users' Triton kernels: `kernel[grid](...)` is one node, whatever the kernel is wrapped in.

Triton is never imported for this: a kernel can only be there if it is.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from intarsia_ir.guards import IdentityGuard
from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import NONE, Const, boolean
from intarsia_pyeval.values.functions import Function
from intarsia_pyeval.values.mappings import Dict
from intarsia_pyeval.values.objects import Object, Reference
from intarsia_pyeval.values.sequences import Items, Tuple
from intarsia_tensorcapture.kernel_operators import (
    Fixed,
    Launch,
    configurations,
    kernel_operator,
    kinds_of,
    layers,
    parameter_names,
)
from intarsia_tensorcapture.kernel_writes import Unreadable
from intarsia_tensorcapture.numbers import SymbolicNumber
from intarsia_tensorcapture.tensor import TensorValue, plain_number

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["call_compiler_object", "call_of_compiler", "is_kernel", "is_of_compiler", "recording_launcher"]


_KINDS: dict[type, str] = {bool: "bool", int: "SymInt", float: "float", str: "str", torch.SymInt: "SymInt"}
_DIMENSIONS = 3


_COMPILERS = frozenset({"triton", "numba", "jax", "jaxlib"})


def is_of_compiler(module: str | None) -> bool:
    """Tell whether a module belongs to a package whose Python code is another compiler's."""
    return (module or "").partition(".")[0] in _COMPILERS


def is_kernel(value: Any) -> bool:
    """Tell whether something is a kernel of Triton's, however it is wrapped."""
    module = sys.modules.get("triton.runtime.jit")
    return module is not None and isinstance(value, module.KernelInterface)


def call_of_compiler(
    plugin: Recording, tx: Tracer, function: Function, args: Sequence[Value], keywords: Keywords
) -> Value:
    """Call a Python function of another compiler.

    Raises:
        Break: It is another, or the launch is given what no operator takes.
    """
    name = function.value.__qualname__
    if args and isinstance(args[0], Object) and is_kernel(args[0].value) and name.endswith(".run"):
        return _launched(plugin, tx, args[0], args[1:], keywords)
    if name == "KernelInterface.__getitem__":  # as Triton's own, of parts that bytecode can build where it breaks
        run = do.get_attribute(tx, args[0], "run")
        return do.call(tx, tx.live.wrap(functools.partial, None), [run], {"grid": args[1], "warmup": boolean(False)})
    stand_in = _STAND_INS.get(name)
    if stand_in is not None:
        return do.call(tx, tx.live.wrap(stand_in, None), args, keywords)
    raise Break("tracer.call", f"{function.describe()} belongs to a compiler, which isn't compiled itself")


def call_compiler_object(tx: Tracer, callee: Object, args: Sequence[Value], keywords: Keywords) -> Value | None:
    """Call what Triton made of a function that it runs itself, such as `triton.cdiv`; None for other objects."""
    module = sys.modules.get("triton.runtime.jit")
    constant: Any = getattr(module, "ConstexprFunction", ())
    if not isinstance(callee.value, constant):
        return None
    function = callee.value.fn
    if callee.source is not None:
        tx.guards.add(IdentityGuard, callee.source, callee.value)
    of_triton = (function.__module__ or "").partition(".")[0] == "triton"
    stand_in = _STAND_INS.get(function.__name__) if of_triton else None
    return do.call(tx, tx.live.wrap(stand_in or function, None), args, keywords)


def _cdiv(x: Any, y: Any) -> Any:
    return (x + y - 1) // y


def _next_power_of_2(n: Any) -> Any:
    """Sizes that stay open are known to lie between two powers, afterwards."""
    if n < 1:
        return 0
    power = 1
    while power < n:
        power *= 2
    return power


_STAND_INS: dict[str, Callable[..., Any]] = {"cdiv": _cdiv, "next_power_of_2": _next_power_of_2}


# ---- while the program is evaluated ----------------------------------------------------------------------------


def _launched(plugin: Recording, tx: Tracer, kernel: Object, args: Sequence[Value], keywords: Keywords) -> Value:
    """Record a launch."""
    if plugin.scopes.open:
        raise Break("tracer.call", "a kernel is launched in a function that torch.func transforms")
    if kernel.source is not None:
        tx.guards.add(IdentityGuard, kernel.source, kernel.value)
    named = dict(keywords)
    grid, _ = named.pop("grid"), named.pop("warmup", None)
    args, named = [*map(plain_number, args)], {name: plain_number(value) for name, value in named.items()}
    is_computed = not isinstance(grid, Items)
    values = [*args, *named.values()]
    kinds = kinds_of(values, _kind_of_model, lambda value: value.fake)
    launch = Launch(tuple(kinds), tuple(named), is_computed)
    op = _operator(kernel.value, launch)

    def evaluated(parameters: Mapping[str, Any], function: Any) -> Value:
        held: dict[Hashable, tuple[Value, Value]] = {key: (Const(key), value) for key, value in parameters.items()}
        return do.call(tx, function if isinstance(function, Value) else tx.live.wrap(function, None), [Dict(held)], {})

    grids = [grid]
    if is_computed:
        grids = _grids(kernel.value, grid, args, named, evaluated, tx.live.from_python)
    sizes: list[Value] = [size for one in grids for size in _three(one, is_computed, Const(1))]
    plugin.record(tx, "call_function", op, [*launch.taken(values), Tuple(sizes)], {})
    return NONE


def _kind_of_model(value: Value) -> str | Fixed:
    """Return the type of an argument in a schema, or the argument where only the operator can hold it."""
    if isinstance(value, TensorValue):
        return "Tensor"
    if isinstance(value, SymbolicNumber) and value.type() is int:
        return "SymInt"
    if isinstance(value, (Object, Reference)):
        held = value.value
        if held is not None and isinstance(held, _atoms()):
            return Fixed(held)
        raise Break("tracer.tensor_op", f"a kernel is given {value.describe()}")
    held = value.as_python()
    return _KINDS.get(type(held)) or Fixed(held)


def _atoms() -> tuple[type, ...]:
    """Return the classes of Triton whose objects are immutable: types, and functions to be called by kernels."""
    language, runtime = sys.modules["triton.language"], sys.modules["triton.runtime.jit"]
    return (language.dtype, runtime.JITFunction, type(runtime), _interpreted())


def _interpreted() -> type:
    interpreter = sys.modules.get("triton.runtime.interpreter")
    found: type = type(None) if interpreter is None else interpreter.InterpretedFunction
    return found


def _three(grid: Any, is_computed: bool, one: Any) -> list[Any]:
    """Return the sizes of a grid: three of one that is computed, so that those of each configuration are known."""
    if not isinstance(grid, (Items, tuple, list)):
        raise Break("tracer.tensor_op", "the grid of a kernel is no tuple")
    sizes = [*(grid.items if isinstance(grid, Items) else grid)]
    return [*sizes, *[one] * (_DIMENSIONS - len(sizes))] if is_computed else sizes


# ---- in both ways ----------------------------------------------------------------------------------------------


def _operator(kernel: Any, launch: Launch) -> Any:
    name = layers(kernel)[-1].fn.__qualname__
    try:
        return kernel_operator(kernel, launch)
    except Unreadable:
        raise Break("tracer.tensor_op", f"the kernel {name} takes pointers from memory") from None
    except TypeError as error:
        raise Break("tracer.tensor_op", f"the kernel {name} is given what has no hash: {error}") from None


def _grids(
    kernel: Any,
    grid: Any,
    args: Sequence[Any],
    named: Mapping[str, Any],
    evaluated: Callable[[Mapping[str, Any], Any], Any],
    of_python: Callable[[Any], Any],
) -> list[Any]:
    """Return the grid that a function computes for each configuration of a kernel.

    Args:
        kernel: The kernel.
        grid: The function, or its model.
        args: Positional arguments of the launch.
        named: The others.
        evaluated: Calls a function, or the model of one, with the parameters of a launch.
        of_python: Returns what stands for a number among them.
    """
    found = layers(kernel)
    signature = inspect.signature(found[-1].fn).parameters
    defaults = {n: of_python(p.default) for n, p in signature.items() if p.default is not p.empty}
    given = {**defaults, **dict(zip(parameter_names(kernel), args, strict=False)), **named}
    grids = []
    for configuration in configurations(kernel):
        parameters = {**given, **{name: of_python(value) for name, value in configuration.items()}}
        for layer in found[:-1]:
            for name, rule in getattr(layer, "values", {}).items():
                parameters[name] = evaluated(parameters, rule)
        grids.append(evaluated(parameters, grid))
    return grids


# ---- while an autograd function is recorded --------------------------------------------------------------------


def recording_launcher(kernel: Any) -> Any:
    """Return what stands for a kernel in Python code that runs on fake tensors: its launches call operators."""
    return _Launcher(kernel)


class _Launcher:
    """Stands for one kernel."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *args, **kwargs: self.run(*args, grid=grid, **kwargs)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> None:
        """Call the operator of a launch."""
        values = [*args, *kwargs.values()]
        kinds = kinds_of(values, _kind, lambda value: value)
        launch = Launch(tuple(kinds), tuple(kwargs), callable(grid))
        grids = [grid]
        if callable(grid):
            grids = _grids(
                self.kernel, grid, args, kwargs, lambda given, rule: rule(dict(given)), lambda number: number
            )
        sizes = [size for one in grids for size in _three(one, callable(grid), 1)]
        _operator(self.kernel, launch)(*launch.taken(values), sizes)


def _kind(value: Any) -> str | Fixed:
    return "Tensor" if isinstance(value, torch.Tensor) else _KINDS.get(type(value)) or Fixed(value)
