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
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import torch

from intarsia_ir.guards import IdentityGuard
from intarsia_pyeval import do
from intarsia_pyeval.stores import cell_store, dict_store, function_store
from intarsia_pyeval.values.base import Value
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

__all__ = ["makers", "rely_on_what_it_reads", "what_else_it_does"]


_PURE = frozenset(
    {"Ellipsis", "NotImplemented", "abs", "all", "any", "bool", "bytes", "callable", "complex", "dict",
     "divmod", "enumerate", "filter", "float", "frozenset", "getattr", "hasattr", "int", "isinstance",
     "issubclass", "iter", "len", "list", "map", "max", "min", "next", "pow", "range", "reversed", "round",
     "set", "slice", "sorted", "str", "sum", "super", "tuple", "type", "zip"}
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


def what_else_it_does(tx: Tracer, function: Function, *, late: bool = False) -> str:
    """Return what a function does besides computing; "" for nothing. What it relies on is guarded.

    Args:
        tx: The tracer.
        function: The function.
        late: It runs in a backward pass, when a constant that guards looked at before the call may be another.
    """
    return next(_Look(tx, late=late).doings(function, 0), "")


def rely_on_what_it_reads(
    tx: Tracer, model: Value, others: Callable[[Value], None], attributes: dict[str, None]
) -> str:
    """Guard all that a function reads besides its arguments, as far as guards can tell; return what they can't.

    Args:
        tx: The tracer.
        model: The function, or something else that code reads.
        others: Told of what else it reads, such as a table.
        attributes: Takes the names of attributes that it reads, of whatever they may be.
    """
    look = _Look(tx, late=False, others=others)
    found = look.doings(model, 0) if isinstance(model, Function) else look.used(model, model.describe(), [], 0)
    doings = "; ".join(dict.fromkeys(found))
    attributes.update(look.attributes)
    return doings


class _Look:
    """A look at a function and at those that it calls, each once for each pass that it runs in.

    Args:
        tx: The tracer.
        late: As for `what_else_it_does`.
        others: Told of what is read and may change.

    Attributes:
        attributes: Names of attributes that were read, in order.
    """

    def __init__(self, tx: Tracer, *, late: bool, others: Callable[[Value], None] = lambda _: None) -> None:
        self.tx, self.late, self.others = tx, late, others
        self.attributes: dict[str, None] = {}
        self._seen: set[Any] = set()

    def doings(self, function: Function, depth: int) -> Iterator[str]:
        """Yield what a function does besides computing."""
        code, value = function.code, function.value
        # what runs in the forward pass alone may rely on more than what runs later, too
        if (value, self.late) in self._seen:
            return
        self._seen.add((value, self.late))
        if code.co_filename.startswith(_TORCH):
            function.guard_identity(self.tx.guards)
            if depth <= _DEEPEST:
                yield from self._held_by_wrapper(function, depth)
            return
        if depth > _DEEPEST:
            yield f"calls functions more than {_DEEPEST} deep"
            return
        function.guard_code(self.tx.guards)
        function.guard_identity(self.tx.guards)
        if vars(value).keys() - {"__wrapped__"}:
            yield "uses a function that has attributes"
        named = [function_store.keyword_default(self.tx, function, name) for name in value.__kwdefaults__ or ()]
        for default in (*function_store.positional_defaults(self.tx, function), *named):
            if any(_Look(self.tx, late=False, others=self.others).used(default, "a default", [], depth)):
                yield "has a default that may be changed"
        for inner in _codes(code):
            yield from self._in_code(function, inner, depth)

    def _held_by_wrapper(self, function: Function, depth: int) -> Iterator[str]:
        """Look at the functions that a decorator of torch's wraps."""
        for index, cell in enumerate(function.value.__closure__ or ()):
            if type(cell.cell_contents) is FunctionType:
                held = cell_store.content_of(
                    self.tx, function_store.cells(self.tx, function)[index], function.code.co_freevars[index], free=True
                )
                if isinstance(held, Function):
                    yield from self.doings(held, depth + 1)
                else:
                    yield "is wrapped"

    def _in_code(self, function: Function, code: CodeType, depth: int) -> Iterator[str]:
        """Look at each instruction. A name is followed through the attributes that are read of it right away."""
        instructions = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG", "PUSH_NULL")]
        for index, instruction in enumerate(instructions):
            name, opname = instruction.argval, instruction.opname
            if opname in _WRITES:
                yield f"writes {name}"
            elif opname == "IMPORT_NAME" and str(name).partition(".")[0] not in _IMPORTED:
                yield f"imports {name}"
            elif "ATTR" in opname or "METHOD" in opname:
                self.attributes[str(name)] = None
                if name in _FORBIDDEN:
                    yield f"uses {name}"
            elif opname.startswith("LOAD_GLOBAL") or opname == "LOAD_NAME":
                yield from self._global(function, str(name), _attributes(instructions[index + 1 :]), depth)
            elif opname in _FREE and name in function.code.co_freevars:
                if not opname.startswith("LOAD"):
                    yield f"writes {name}"
                # a closure is for a function within, of which the instructions are looked at as well
                elif opname != "LOAD_CLOSURE":
                    yield from self._free(function, str(name), _attributes(instructions[index + 1 :]), depth)

    def _free(self, function: Function, name: str, attributes: list[str], depth: int) -> Iterator[str]:
        if name == "__class__":  # of `super()`
            return
        position = function.code.co_freevars.index(name)
        found = cell_store.content_of(self.tx, function_store.cells(self.tx, function)[position], name, free=True)
        yield from self.used(found, name, attributes, depth)

    def _global(self, function: Function, name: str, attributes: list[str], depth: int) -> Iterator[str]:
        names = function.value.__globals__
        if name not in names:
            found = getattr(builtins, name, None)
            if not (name in _PURE or (isinstance(found, type) and issubclass(found, BaseException))):
                yield f"uses {name}"
            dict_store.guard_absent(self.tx, function_store.global_names(self.tx, function), name)
            return
        model = dict_store.find(self.tx, function_store.global_names(self.tx, function), name)
        if model is None:
            yield f"reads {name}"
        else:
            yield from self.used(model, name, attributes, depth)

    def used(self, model: Any, name: str, attributes: list[str], depth: int) -> Iterator[str]:
        """Tell what using a variable from outside amounts to. What may be another later is not relied on."""
        model = plain_number(model)
        if isinstance(model, Const) or (isinstance(model, SetValue) and _is_immutable(model.real)):
            if self.late and not _is_fixed(model):
                yield f"reads {name}, which may be another by then"
        elif isinstance(model, ChangingNumber):
            if self.late:
                yield f"reads {name}, which may be another by then"
            else:
                model.as_python()  # guards what it is now
        elif isinstance(model, Function):
            if not _is_of_torch(model.value) or _only_computes(model.value):
                yield from self.doings(model, depth + 1)
            else:
                yield f"calls {name}"
        elif isinstance(model, Slice) or (isinstance(model, Tuple) and model.cls in (tuple, torch.Size)):
            for part in model.parts if isinstance(model, Slice) else model.items:
                yield from self.used(part, name, [], depth)
        elif isinstance(model, Object) and (is_leaf(operator_of(model.value)) or is_kernel(model.value)):
            if model.source is not None:
                self.tx.guards.add(IdentityGuard, model.source, model.value)
        elif isinstance(model, Reference):
            yield from self._reference(model, name, attributes, depth)
        else:
            self.others(model)
            yield f"reads {name}"

    def _reference(self, model: Reference, name: str, attributes: list[str], depth: int) -> Iterator[str]:
        """Look at a module, a class or a function written in C, and at what is read of a module."""
        value: Any = model.identity()
        if isinstance(value, ModuleType) and attributes and value.__name__.partition(".")[0] not in _MODULES:
            found = do.get_attribute(self.tx, model, attributes[0])
            yield from self.used(found, f"{name}.{attributes[0]}", attributes[1:], depth)
            return
        for attribute in attributes:
            if not isinstance(value, ModuleType):
                break
            value = getattr(value, attribute, None)
        if isinstance(value, type) and issubclass(value, torch.autograd.Function) and attributes[:1] == ["apply"]:
            yield from self._parts(model, depth + 1)
        elif isinstance(value, type) and hasattr(value, "__tensor_flatten__") and not attributes:
            yield from self._made(model, value, depth + 1)
        elif not _launches(value) and not _only_computes(value):
            yield f"reads {'.'.join([name, *attributes])}"

    def _parts(self, cls: Any, depth: int) -> Iterator[str]:
        """Look at each part of an autograd function that is applied."""
        if depth > _DEEPEST:
            yield "applies itself"
            return
        for part in ("forward", "backward", "setup_context"):
            found = do.get_attribute(self.tx, cls, part)
            if isinstance(found, Function):
                late, self.late = self.late, self.late or part == "backward"
                yield from self.doings(found, depth)
                self.late = late
            else:
                yield f"applies {cls.describe()}"

    def _made(self, model: Reference, cls: Any, depth: int) -> Iterator[str]:
        """Look at what makes a tensor that is made of others."""
        if model.source is not None:
            self.tx.guards.add(IdentityGuard, model.source, cls)
        for function in makers(self.tx, cls):
            yield from self.doings(function, depth)


def _launches(value: Any) -> bool:
    """Tell whether something is a kernel, or of its compiler, such as `triton.cdiv`."""
    return is_kernel(value) or (is_of_compiler(getattr(value, "__module__", None)) and callable(value))


def makers(tx: Tracer, cls: Any) -> Iterator[Function]:
    """Yield what of a class runs where an instance is made, as far as that is written in Python."""
    owner = tx.live.class_value(cls)
    for name in ("__new__", "__init__"):
        found = tx.classes.find(cls, name)
        raw = found[0] if found is not None else None
        if isinstance(raw, (FunctionType, staticmethod)):
            model = tx.live.class_function(owner, cls, name, *(("__func__",) if isinstance(raw, staticmethod) else ()))
            if isinstance(model, Function):
                yield model


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _attributes(instructions: list[dis.Instruction]) -> list[str]:
    """Return the names that are read, one of the other, from what was pushed before."""
    found = []
    for instruction in instructions:
        if instruction.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
            break
        found.append(str(instruction.argval))
    return found


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


def _is_fixed(model: Any) -> bool:
    """Tell whether nobody gives a name another value than this: it's a dtype or the like, not a number."""
    return isinstance(model, Const) and isinstance(
        model.value, torch.dtype | torch.device | torch.layout | torch.memory_format
    )


def _is_immutable(value: object) -> bool:
    if type(value) in (tuple, frozenset):
        return all(map(_is_immutable, value))  # type: ignore[call-overload]
    return type(value) in _IMMUTABLE  # objects of subclasses may hold anything
