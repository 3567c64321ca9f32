"""`__torch_function__`: classes of tensors and modes that say what a function of torch does with them.

A function is *asked about* where a mode is on, or an argument is of a class that has a `__torch_function__` of its own.
Then the handler, which is Python, is evaluated like any other code of the program, in eager's order: the innermost mode
first, which is off meanwhile, then the classes of the arguments, subclasses before their bases. What the handler calls
in the end is recorded. While tracing torch itself asks nobody: the modes of the caller are put aside.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.overrides

from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import inlining, iteration
from intarsia_pyeval.stores import dict_store
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import NONE, Const, boolean
from intarsia_pyeval.values.functions import Function
from intarsia_pyeval.values.mappings import Dict
from intarsia_pyeval.values.objects import Builtin, Object
from intarsia_pyeval.values.sequences import Items, Tuple
from intarsia_pyeval.values.signatures import arity
from intarsia_tensorcapture.described import PLAIN
from intarsia_tensorcapture.function_state import OFF, TurnedOff
from intarsia_tensorcapture.tables import is_leaf
from intarsia_tensorcapture.tensor import TensorValue, overridden, property_of, recording_of

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = [
    "HANDLERS",
    "called",
    "getter_of_property",
    "has_own_handler",
    "is_evaluated",
    "property_called",
]


_DISABLED: Any = torch._C._disabled_torch_function_impl
_DEFAULT: Any = torch.Tensor.__torch_function__.__func__  # type: ignore[attr-defined]
#: Functions of torch that the default handler consists of.
_OF_DEFAULT = frozenset({_DEFAULT, torch._tensor._convert})
#: Functions that modes are asked about, besides those that take or make tensors.
_FOR_MODES = frozenset({torch._C._set_grad_enabled})
#: Method of the operator -> what torch calls it where it asks.
_NAMES = {
    "__add__": "add", "__radd__": "add", "__iadd__": "add_", "__sub__": "sub", "__isub__": "sub_",
    "__mul__": "mul", "__rmul__": "mul", "__imul__": "mul_", "__truediv__": "div", "__itruediv__": "div_",
    "__idiv__": "div_", "__mod__": "remainder", "__imod__": "remainder_", "__ifloordiv__": "floor_divide_",
    "__matmul__": "matmul", "__ne__": "ne", "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge",
    "__neg__": "neg", "__pos__": "positive", "__abs__": "abs",
}  # fmt: skip
#: Methods that torch asks nobody about.
_UNASKED = frozenset({"as_subclass", "__hash__", "__repr__", "__str__", "__setattr__", "__class__", "__iter__"})


def has_own_handler(cls: Any) -> bool:
    """Tell whether torch asks a class what functions do with its instances."""
    if cls in PLAIN:
        return False
    found = getattr(cls, "__torch_function__", None)
    return found is not None and found is not _DISABLED


def _is_default(cls: Any) -> bool:
    """Tell whether a class does what every tensor does: results are of the class."""
    return getattr(cls.__torch_function__, "__func__", None) is _DEFAULT


def _askable(values: Iterable[Value]) -> Iterator[Value]:
    """Yield the arguments that have a handler, in lists of arguments too."""
    for value in values:
        if isinstance(value, (TensorValue, Object)):
            if has_own_handler(value.type()):
                yield value
        elif isinstance(value, Items) and value.type() in (list, tuple):
            yield from _askable(value.items)


def _in_order(values: Iterable[Value]) -> list[Any]:
    """Return the classes that are asked: each once, subclasses before their bases."""
    found: list[Any] = []
    for value in values:
        cls = value.type()
        if cls not in found:
            place = next((index for index, other in enumerate(found) if issubclass(cls, other)), len(found))
            found.insert(place, cls)
    return found


def _says_what_it_is_made_of(cls: Any) -> bool:
    """Tell whether instances are made of inner tensors: their handlers run where the graph does, on fake tensors."""
    return issubclass(cls, torch.Tensor) and hasattr(cls, "__tensor_flatten__")


def _classes(plugin: Recording, values: Iterable[Value]) -> list[Any]:
    return _in_order(_askable(values)) if plugin.state.functions.asks_classes() else []


def is_asked_about(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> bool:
    """Tell whether torch would ask about a function with these arguments."""
    state = plugin.state.functions
    if not state.possible and not any(type(value) is Object for value in args):
        return False
    asked = any(not _says_what_it_is_made_of(cls) for cls in _classes(plugin, [*args, *keywords.values()]))
    return asked or bool(state.asked_modes(tx))


def _ask(
    plugin: Recording,
    tx: Tracer,
    function: Value,
    relevant: Sequence[Value],
    args: Sequence[Value],
    keywords: Keywords,
    *,
    named: bool,
    classes: Sequence[Any] = (),
) -> Value:
    """Evaluate the handlers until one answers.

    Args:
        plugin: Records.
        tx: The tracer.
        function: What they are asked about.
        relevant: Arguments whose classes are asked.
        args: What the handlers are given.
        keywords: What they are given by name.
        named: Whether they get a dict where there are no keywords: functions written in Python give one.
        classes: Who is asked, if it isn't those of `relevant`.
    """
    classes = classes or _classes(plugin, relevant)
    kinds = Tuple([tx.live.class_value(cls) for cls in classes])
    given = [function, kinds, Tuple(args)]
    if named or keywords:
        given.append(_dict_of(tx, keywords))
    modes = plugin.state.functions.asked_modes(tx)
    if modes:
        mode = modes.pop()
        try:
            answer = do.call(tx, do.get_attribute(tx, mode, "__torch_function__"), given, {})
        finally:
            modes.append(mode)
        if not _declines(answer):
            return answer
    for cls in classes:
        if _says_what_it_is_made_of(cls) or cls is torch.nn.Parameter:
            continue
        answer = do.call(tx, do.get_attribute(tx, tx.live.class_value(cls), "__torch_function__"), given, {})
        if not _declines(answer):
            return answer
    raise Break("tracer.operation_raised", f"no __torch_function__ answers for {function.describe()}")


def _dict_of(tx: Tracer, keywords: Keywords) -> Value:
    made = Dict()
    for name, value in keywords.items():
        dict_store.store(tx, made, tx.live.key(name), Const(name), value)
    return made


def _declines(answer: Value) -> bool:
    return isinstance(answer, Const) and answer.value is NotImplemented


# ---- where torch asks


def called(plugin: Recording, tx: Tracer, function: Any, args: Sequence[Value], keywords: Keywords) -> Value | None:
    """Model the call of a function of torch, written in C, that is asked about; None for others."""
    if not is_asked_about(plugin, tx, args, keywords) or not (is_leaf(function) or function in _FOR_MODES):
        return None
    name = getattr(function, "__name__", "")
    if getattr(torch.Tensor, name, None) is function and name in _UNASKED:
        return None
    given = [*args, *keywords.values()]
    return _ask(plugin, tx, tx.live.wrap(function, None), given, args, keywords, named=type(function) in _OPERATORS)


_OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)


@overridden.rule(TensorValue)
def method_called(
    tx: Tracer, tensor: TensorValue, name: str, args: Sequence[Value], keywords: Keywords
) -> Value | None:
    """Model a method that is asked about; one that is written in Python asks itself."""
    plugin = tensor.plugin
    if name in _UNASKED or not is_asked_about(plugin, tx, [tensor, *args], keywords):
        return None
    raw = getattr(torch.Tensor, name, None)
    if isinstance(raw, types.FunctionType):
        return inlining.inline(tx, Function(raw), [tensor, *args], keywords)
    raw = getattr(torch.Tensor, _NAMES.get(name, name), None)
    if raw is None:
        return None
    given, model = [tensor, *args, *keywords.values()], tx.live.wrap(raw, None)
    nothing = not args and not keywords and plugin.state.functions.asks_classes() and _takes_nothing(raw)
    classes = [tensor.cls] if nothing else []
    return _ask(plugin, tx, model, given, [tensor, *args], keywords, named=False, classes=classes)


@functools.cache
def _takes_nothing(method: Any) -> bool:
    """Tell whether a method takes no arguments: of its object, torch asks the class even if that has no handler."""
    try:
        method(torch.empty(0, device="meta"), object())
    except TypeError as error:
        return "takes no arguments" in str(error)
    return False


@property_of.rule(TensorValue)
def property_asked(tx: Tracer, tensor: TensorValue, name: str, args: Sequence[Value]) -> Value | None:
    """Model a property of tensors that is asked about: one that is read, or set to `args`."""
    plugin, raw = tensor.plugin, getattr(torch.Tensor, name, None)
    if not isinstance(raw, types.GetSetDescriptorType) or not is_asked_about(plugin, tx, [tensor], {}):
        return None
    function = raw.__set__ if args else raw.__get__
    if not args and (function not in torch.overrides.get_testing_overrides() or _gives_the_same(tx, tensor, name)):
        return None
    classes = [tensor.cls] if plugin.state.functions.asks_classes() else []
    return _ask(plugin, tx, Builtin(function), [tensor, *args], [tensor, *args], {}, named=False, classes=classes)


_OF_TENSORS = frozenset({"T", "mT", "H", "mH", "real", "imag", "data", "grad", "_base"})


def _gives_the_same(tx: Tracer, tensor: TensorValue, name: str) -> bool:
    """Tell whether the default handler, asked alone, gives what would be given without it: no tensor."""
    return name not in _OF_TENSORS and not tensor.plugin.state.functions.any_modes() and _is_default(tensor.cls)


def getter_of_property(value: Any) -> Builtin | None:
    """Model `Tensor.shape.__get__` and its like; None for others."""
    if type(value) is not types.MethodWrapperType or not isinstance(value.__self__, types.GetSetDescriptorType):
        return None
    return Builtin(value)


def property_called(tx: Tracer, function: Any, args: Sequence[Value]) -> Value | None:
    """Model a call of `Tensor.shape.__get__` and its like, as handlers make it; None for others."""
    if type(function) is not types.MethodWrapperType or not args or not isinstance(args[0], TensorValue):
        return None
    descriptor = function.__self__
    if not isinstance(descriptor, types.GetSetDescriptorType):
        return None
    name: str = descriptor.__name__
    if getattr(torch.Tensor, name, None) is not descriptor:
        return None
    if function.__name__ == "__get__":
        return do.get_attribute(tx, args[0], name)
    if function.__name__ == "__set__" and len(args) == 2:
        do.set_attribute(tx, args[0], name, args[1])
        return NONE
    return None


def is_evaluated(plugin: Recording, tx: Tracer, function: Any, args: Sequence[Value], keywords: Keywords) -> bool:
    """Tell whether a function of torch, written in Python, is evaluated: it asks itself, or is a handler."""
    if function in _OF_DEFAULT or function.__name__ == "__torch_function__":
        return True
    return is_asked_about(plugin, tx, args, keywords) and is_leaf(function)


# ---- what Python functions of torch, and handlers, call


def _has(variadic: bool) -> Any:
    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        relevant = args if variadic else iteration.unpack(tx, arity("has_torch_function", args, keywords, 1)[0])
        return boolean(is_asked_about(plugin, tx, relevant, {}))

    return handler


def _handle(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """`torch.overrides.handle_torch_function(function, relevant, *args, **keywords)`."""
    function, given, *rest = args
    relevant = iteration.unpack(tx, given)
    tensors = [x for x in relevant if issubclass(x.type(), torch.Tensor) and x.type() is not torch.nn.Parameter]
    others = [x for x in _askable(relevant) if not isinstance(x, TensorValue)]
    # unlike a function written in C, it takes plain tensors for such as have a handler
    classes = _in_order([*tensors, *others]) if plugin.state.functions.asks_classes() else []
    return _ask(plugin, tx, function, relevant, rest, keywords, named=True, classes=classes)


def _push(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    (mode,) = arity("_push_on_torch_function_stack", args, keywords, 1)
    state = plugin.state
    if not isinstance(mode, Object) or not issubclass(mode.type(), torch.overrides.TorchFunctionMode):
        raise Break("tracer.tensor_op", f"{mode.describe()} becomes a mode of torch functions")
    state.functions.possible = True
    state.functions.modes(tx).append(mode)
    tx.effects.advanced()
    return NONE


def _pop(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    modes = plugin.state.functions.modes(tx)
    if not modes:
        raise Break("tracer.operation_raised", "there is no mode of torch functions to leave")
    tx.effects.advanced()
    return modes.pop()


def _length(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    return Const(len(plugin.state.functions.modes(tx)))


def _at(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    (index,) = arity("_get_function_stack_at", args, keywords, 1)
    mode: Value = plugin.state.functions.modes(tx)[index.as_python()]
    return mode


def _modes_on(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    return boolean(bool(plugin.state.functions.asked_modes(tx)))


def _turned_off(cls: Any) -> Any:
    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        arity(cls.__name__, args, keywords, 0)
        return TurnedOff(cls)

    return handler


HANDLERS: dict[Any, Any] = {
    torch._C._has_torch_function: _has(variadic=False),
    torch._C._has_torch_function_unary: _has(variadic=True),
    torch._C._has_torch_function_variadic: _has(variadic=True),
    torch.overrides.handle_torch_function: _handle,
    torch._C._push_on_torch_function_stack: _push,
    torch._C._pop_torch_function_stack: _pop,
    torch._C._len_torch_function_stack: _length,
    torch._C._get_function_stack_at: _at,
    torch._C._is_torch_function_mode_enabled: _modes_on,
    **{cls: _turned_off(cls) for cls in OFF},
}


@do.get_attribute.rule(TurnedOff)
def get_attribute(tx: Tracer, context: TurnedOff, name: str) -> Value:
    """Bind a method."""
    return (
        BoundBuiltin(context, name)
        if name in ("__enter__", "__exit__")
        else do.get_attribute.default(tx, context, name)
    )


@do.call_method.rule(TurnedOff)
def call_method(tx: Tracer, context: TurnedOff, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Enter or leave it."""
    off = recording_of(tx).state.functions.off
    if name == "__enter__":
        off.append(context)
    elif name == "__exit__" and off and off[-1] is context:
        off.pop()
    else:
        raise Break("tracer.tensor_op", f"{context.cls.__name__} is left in another order than it was entered")
    tx.effects.advanced()
    return NONE


@codegen.reconstruct.rule(TurnedOff)
def reconstruct(out: Builder, context: TurnedOff) -> None:
    """Make the context."""
    out.call(lambda: out.constant(context.cls), [])
