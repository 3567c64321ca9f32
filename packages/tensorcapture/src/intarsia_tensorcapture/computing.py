"""Whether a Python function only computes from its arguments, as far as its instructions tell.

What a user's autograd function does in Python happens once, when a graph is recorded. So its code may use its
arguments, its own variables, torch's functions but those for settings, built-in functions without effects, constants
(which are guarded), and Python functions of which the same holds. Anything else could change between calls, or be seen
from outside.
"""

from __future__ import annotations

import builtins
import dis
import os
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import torch

from intarsia_ir.guards import IdentityGuard
from intarsia_pyeval import do
from intarsia_pyeval.stores import cell_store, dict_store, function_store
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.functions import Function
from intarsia_pyeval.values.numbers import ChangingNumber
from intarsia_pyeval.values.objects import Object, Reference
from intarsia_pyeval.values.sequences import Slice, Tuple
from intarsia_pyeval.values.sets import SetValue
from intarsia_tensorcapture.kernel_calls import is_kernel, is_of_compiler
from intarsia_tensorcapture.operators import operator_of
from intarsia_tensorcapture.tables import ANSWERS, PURE, is_leaf
from intarsia_tensorcapture.tensor import plain_number

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["what_else_it_does"]


_PURE = frozenset(
    {"Ellipsis", "NotImplemented", "abs", "all", "any", "bool", "bytes", "callable", "complex", "dict",
     "divmod", "enumerate", "filter", "float", "frozenset", "getattr", "hasattr", "int", "isinstance",
     "issubclass", "iter", "len", "list", "map", "max", "min", "next", "pow", "range", "reversed", "round",
     "set", "slice", "sorted", "str", "sum", "tuple", "type", "zip"}
)  # fmt: skip
_FORBIDDEN = frozenset(
    {"__builtins__", "__class__", "__closure__", "__code__", "__dict__", "__globals__", "_backward_cls",
     "_forward_cls", "manual_seed", "register_hook", "register_post_accumulate_grad_hook"}
)  # fmt: skip
_IMMUTABLE = (
    bool, int, float, complex, str, bytes, type(None), type(...), torch.dtype, torch.device, torch.layout,
    torch.memory_format,
)  # fmt: skip
_MODULES = frozenset({"torch", "triton", "math", "cmath", "operator", "functools"})
#: What may be imported inside: modules whose names needn't be followed.
_IMPORTED = _MODULES - {"torch", "triton"}
#: Functions of torch that tell what guards rely on at the entry, and what regions of the program change.
_GUARDED = frozenset(
    {torch.is_grad_enabled, torch.is_inference_mode_enabled, torch.is_autocast_enabled, torch.get_autocast_dtype,
     torch.get_autocast_cpu_dtype, torch.get_autocast_gpu_dtype, torch.is_autocast_cache_enabled,
     torch.is_autocast_cpu_enabled, torch.get_default_dtype, torch.is_tensor}
)  # fmt: skip
#: Modules of torch whose functions read and write no settings of the process.
_COMPUTING = (
    "torch.amp.autocast_mode", "torch.autograd", "torch.cuda.amp.autocast_mode", "torch.func", "torch.functional",
    "torch.masked", "torch.nn.functional", "torch.nn.grad", "torch.utils._pytree", "torch.utils.checkpoint",
)  # fmt: skip
_TORCH = os.path.join(os.path.dirname(torch.__file__), "")
_WRITES = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_NAME", "IMPORT_STAR"})
_FREE = frozenset({"LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF", "LOAD_CLASSDEREF", "LOAD_CLOSURE"})
_DEEPEST = 6


def what_else_it_does(tx: Tracer, function: Function, depth: int = 0, *, late: bool = False) -> str:
    """Return what a function does besides computing; "" for nothing. What it relies on is guarded.

    Args:
        tx: The tracer.
        function: The function.
        depth: How many functions call it.
        late: It runs in a backward pass, when a constant that guards looked at before the call may be another.
    """
    code, value = function.code, function.value
    if code.co_filename.startswith(_TORCH):
        function.guard_identity(tx.guards)
        return "" if depth > _DEEPEST else _held_by_wrapper(tx, function, depth, late)
    if depth > _DEEPEST:
        return f"calls functions more than {_DEEPEST} deep"
    function.guard_code(tx.guards)
    function.guard_identity(tx.guards)
    if vars(value).keys() - {"__wrapped__"}:
        return "uses a function that has attributes"
    named = [function_store.keyword_default(tx, function, name) for name in value.__kwdefaults__ or ()]
    if any(
        _used(tx, default, "a default", [], depth, late=False)
        for default in (*function_store.positional_defaults(tx, function), *named)
    ):
        return "has a default that may be changed"
    for inner in _codes(code):
        doing = _in_code(tx, function, inner, depth, late)
        if doing:
            return doing
    return ""


def _held_by_wrapper(tx: Tracer, function: Function, depth: int, late: bool) -> str:
    """Look at the functions that a decorator of torch's wraps."""
    for index, cell in enumerate(function.value.__closure__ or ()):
        if type(cell.cell_contents) is FunctionType:
            held = cell_store.content_of(
                tx, function_store.cells(tx, function)[index], function.code.co_freevars[index], free=True
            )
            doing = what_else_it_does(tx, held, depth + 1, late=late) if isinstance(held, Function) else "is wrapped"
            if doing:
                return doing
    return ""


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _in_code(tx: Tracer, function: Function, code: CodeType, depth: int, late: bool) -> str:
    """Look at each instruction. A name is followed through the attributes that are read of it right away."""
    instructions = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG", "PUSH_NULL")]
    for index, instruction in enumerate(instructions):
        name, opname = instruction.argval, instruction.opname
        if opname in _WRITES:
            return f"writes {name}"
        if opname == "IMPORT_NAME" and str(name).partition(".")[0] not in _IMPORTED:
            return f"imports {name}"
        if "ATTR" in opname or "METHOD" in opname:
            if name in _FORBIDDEN:
                return f"uses {name}"
        elif opname.startswith("LOAD_GLOBAL") or opname == "LOAD_NAME":
            doing = _global(tx, function, str(name), _attributes(instructions[index + 1 :]), depth, late)
            if doing:
                return doing
        elif opname in _FREE and name in function.code.co_freevars:
            if not opname.startswith("LOAD"):
                return f"writes {name}"
            position = function.code.co_freevars.index(name)
            if opname == "LOAD_CLOSURE":
                continue  # for a function within, of which the instructions are looked at as well
            found = cell_store.content_of(tx, function_store.cells(tx, function)[position], str(name), free=True)
            doing = _used(tx, found, str(name), _attributes(instructions[index + 1 :]), depth, late=late)
            if doing:
                return doing
    return ""


def _attributes(instructions: list[dis.Instruction]) -> list[str]:
    """Return the names that are read, one of the other, from what was pushed before."""
    found = []
    for instruction in instructions:
        if instruction.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
            break
        found.append(str(instruction.argval))
    return found


def _global(tx: Tracer, function: Function, name: str, attributes: list[str], depth: int, late: bool) -> str:
    names = function.value.__globals__
    if name not in names:
        found = getattr(builtins, name, None)
        pure = name in _PURE or (isinstance(found, type) and issubclass(found, BaseException))
        if not pure:
            return f"uses {name}"
        dict_store.guard_absent(tx, function_store.global_names(tx, function), name)
        return ""
    model = dict_store.find(tx, function_store.global_names(tx, function), name)
    return f"reads {name}" if model is None else _used(tx, model, name, attributes, depth, late=late)


def _used(tx: Tracer, model: Any, name: str, attributes: list[str], depth: int, *, late: bool) -> str:
    """Tell what using a variable from outside amounts to. What may be another later is not relied on."""
    model = plain_number(model)
    if isinstance(model, Const) or (isinstance(model, SetValue) and _is_immutable(model.real)):
        return f"reads {name}, which may be another by then" if late and not _is_fixed(model) else ""  # guarded
    if isinstance(model, ChangingNumber):
        if late:
            return f"reads {name}, which may be another by then"
        model.as_python()  # guards what it is now
        return ""
    if isinstance(model, Function):
        own = not _is_of_torch(model.value) or _only_computes(model.value)
        return what_else_it_does(tx, model, depth + 1, late=late) if own else f"calls {name}"
    if isinstance(model, Slice) or (isinstance(model, Tuple) and model.cls in (tuple, torch.Size)):
        parts = model.parts if isinstance(model, Slice) else model.items
        return next(filter(None, (_used(tx, part, name, [], depth, late=late) for part in parts)), "")
    if isinstance(model, Object) and (is_leaf(operator_of(model.value)) or is_kernel(model.value)):
        if model.source is not None:
            tx.guards.add(IdentityGuard, model.source, model.value)
        return ""
    if not isinstance(model, Reference):
        return f"reads {name}"
    value: Any = model.identity()
    if isinstance(value, ModuleType) and attributes and value.__name__.partition(".")[0] not in _MODULES:
        found = do.get_attribute(tx, model, attributes[0])
        return _used(tx, found, f"{name}.{attributes[0]}", attributes[1:], depth, late=late)
    for attribute in attributes:
        if not isinstance(value, ModuleType):
            break
        value = getattr(value, attribute, None)
    if isinstance(value, type) and issubclass(value, torch.autograd.Function) and attributes[:1] == ["apply"]:
        return _parts(tx, model, depth + 1)
    if is_kernel(value) or (is_of_compiler(getattr(value, "__module__", None)) and callable(value)):
        return ""  # such as triton.cdiv
    return "" if _only_computes(value) else f"reads {'.'.join([name, *attributes])}"


def _only_computes(value: Any) -> bool:
    """Tell whether something of a trusted module, or a built-in class, gives the same for the same arguments always."""
    if isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format | float):
        return True  # such as torch.float32, math.pi
    module = value.__name__ if isinstance(value, ModuleType) else str(getattr(value, "__module__", None))
    if isinstance(value, ModuleType | type):
        return module.partition(".")[0] in {*_MODULES, "builtins"}
    if is_leaf(value):
        return True
    if not isinstance(value, FunctionType | BuiltinFunctionType):  # an object, which may hold anything
        return False
    if not _is_of_torch(value):
        return module.lstrip("_") in _MODULES
    known = value in PURE or value in _GUARDED or value.__name__ in ANSWERS
    return known or any(module == m or module.startswith(m + ".") for m in _COMPUTING)


def _is_of_torch(value: Any) -> bool:
    return str(value.__module__).partition(".")[0] == "torch"


def _parts(tx: Tracer, cls: Any, depth: int) -> str:
    """Look at each part of an autograd function that is applied."""
    if depth > _DEEPEST:
        return "applies itself"
    for part in ("forward", "backward", "setup_context"):
        found = do.get_attribute(tx, cls, part)
        if not isinstance(found, Function):
            return f"applies {cls.describe()}"
        doing = what_else_it_does(tx, found, depth, late=part == "backward")
        if doing:
            return doing
    return ""


def _is_fixed(model: Any) -> bool:
    """Tell whether nobody gives a name another value than this: it's a dtype or the like, not a number."""
    return isinstance(model, Const) and isinstance(
        model.value, torch.dtype | torch.device | torch.layout | torch.memory_format
    )


def _is_immutable(value: object) -> bool:
    if type(value) in (tuple, frozenset):
        return all(map(_is_immutable, value))  # type: ignore[call-overload]
    return type(value) in _IMMUTABLE  # objects of subclasses may hold anything
