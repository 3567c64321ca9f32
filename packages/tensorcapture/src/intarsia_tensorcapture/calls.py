"""Calls of torch's functions: as nodes, as answers, as regions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributions
import torch.fx.experimental.symbolic_shapes
import torch.fx.traceback
import torch.utils.checkpoint

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import folding, iteration, operators
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import NONE, Const, boolean, is_none
from intarsia_pyeval.values.functions import Function
from intarsia_pyeval.values.numbers import OpenNumber
from intarsia_pyeval.values.sequences import Items, Tuple
from intarsia_pyeval.values.signatures import arity
from intarsia_tensorcapture import (
    cards,
    contexts,
    distributed,
    distributed_tensors,
    function_subclasses,
    generators,
    gradients,
    higher_order,
    inference,
    leaves,
    messages,
    nested,
    optimizers,
    overriding,
    settings,
    transforms,
)
from intarsia_tensorcapture.arrays.tensors import from_numpy, of_data
from intarsia_tensorcapture.checkpoints import call_checkpoint
from intarsia_tensorcapture.data_sizes import is_data
from intarsia_tensorcapture.devices import default_device, set_default_device
from intarsia_tensorcapture.indexing import narrowed
from intarsia_tensorcapture.items import ItemTruth
from intarsia_tensorcapture.making import full, tensor_from
from intarsia_tensorcapture.numbers import SymbolicNumber
from intarsia_tensorcapture.size_tensors import divided, of_known_numbers
from intarsia_tensorcapture.tables import ANSWERS, PURE, is_leaf
from intarsia_tensorcapture.tensor import TensorValue

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["call_leaf_or_table"]


Handler = Callable[["Recording", "Tracer", Sequence[Value], Keywords], Value | None]


def call_leaf_or_table(
    plugin: Recording, tx: Tracer, function: Any, args: Sequence[Value], keywords: Keywords
) -> Value | None:
    """Model a call of a function or class of torch; None when it isn't one that is known."""
    try:
        handler = HANDLERS.get(function)
    except TypeError:  # unhashable
        return None
    handler = distributed.handler_of(function) if handler is None else handler
    handler = distributed_tensors.handler_of(function) if handler is None else handler
    handler = nested.handler_of(function) if handler is None else handler
    found = None if handler is None else handler(plugin, tx, args, keywords)
    if found is not None:
        return found
    name = getattr(function, "__name__", "")
    if name == "graph_break" and _of_torch(function):
        raise Break("tracer.requested", "a graph break is asked for")
    if name == "annotate" and _of_torch(function):
        return arity(name, args, keywords, 2)[1]
    if name == "_unwrap_optional" and _of_torch(function) and len(args) == 1 and not is_none(args[0]):
        return args[0]
    if name in ANSWERS and _of_torch(function):
        if name == "is_compiling" and optimizers.asks_to_capture_on_cpu(tx.frames):
            raise Break("tracer.operation_raised", "a step with capturable=True on a CPU raises an error in eager")
        if ANSWERS[name] is True:  # natively it would be another
            plugin.told |= plugin.tells
            return boolean(plugin.tells)
        return Const(ANSWERS[name]) if ANSWERS[name] is None else boolean(bool(ANSWERS[name]))
    if isinstance(function, type) and function.__module__ == "torch.return_types":  # a tuple with names, made of items
        return Tuple(iteration.unpack(tx, arity(name, args, keywords, 1)[0]), function)
    if function in PURE:
        return _pure(plugin, tx, function, args, keywords)
    if is_leaf(function):
        old = [keywords.get(name, NONE) for name in ("size_average", "reduce")]
        if any(not is_none(value) and value.type() is not str for value in old):
            return None  # of a loss: it warns, which a node does when it is compiled
        return _record(plugin, tx, function, args, keywords)
    if isinstance(function, type) and issubclass(function, torch.Tensor):
        made = function_subclasses.made_of_class(plugin, tx, function, args, keywords)
        if made is not None:
            return made
        raise Break("tracer.tensor_op", f"a {function.__name__} is made")
    return None


def _of_torch(function: Any) -> bool:
    """Tell whether a function belongs to torch."""
    module = getattr(function, "__module__", None) or ""
    return bool(module == "torch" or module.startswith("torch."))


def _record(plugin: Recording, tx: Tracer, function: Any, args: Sequence[Value], keywords: Keywords) -> Value:
    """Make a node; a method of Tensor that is called through its class becomes a method call."""
    name = getattr(function, "__name__", "")
    if args and isinstance(args[0], TensorValue) and getattr(torch.Tensor, name, None) is function:
        return do.call_method(tx, args[0], name, args[1:], keywords)
    return plugin.record(tx, "call_function", function, args, keywords)


def _pure(plugin: Recording, tx: Tracer, function: Any, args: Sequence[Value], keywords: Keywords) -> Value:
    """Run a function without effects on constants."""
    if function is torch.Size and args:
        sizes = iteration.unpack(tx, args[0])
        if any(isinstance(size, SymbolicNumber) for size in sizes) and all(size.type() is int for size in sizes):
            return Tuple(sizes, torch.Size)
        args = [Tuple(sizes)]
    found = folding.call_pure(tx, function, args, keywords)
    return found


def _is_tensor(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    (value,) = arity("is_tensor", args, keywords, 1)
    return boolean(issubclass(value.type(), torch.Tensor))


def _check(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    condition = args[0] if args else keywords["cond"]
    if isinstance(condition, Const) and condition.value is True:
        return NONE
    if isinstance(condition, (ItemTruth, SymbolicNumber)) and do.branch(tx, condition, lambda: True):
        return NONE
    raise Break("tracer.exception", "a torch._check doesn't hold, or isn't known to hold")


def _length(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value | None:
    """The length of a tensor whose first size depends on data is that size; any other is a constant."""
    shape = args[0].fake.shape if len(args) == 1 and isinstance(args[0], TensorValue) else ()
    return tx.live.from_python(shape[0]) if shape and is_data(shape[0]) else None


def _narrow(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value | None:
    return narrowed(plugin, tx, args[0], args[1:], keywords) if args and isinstance(args[0], TensorValue) else None


def _check_is_size(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    number = args[0] if args else keywords["i"]
    if isinstance(number, (SymbolicNumber, OpenNumber)):
        return _check(plugin, tx, [operators.compare(tx, ">=", number, Const(0))], {})
    return NONE


def _expect_true(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """What asks goes on where it is true, and raises else."""
    return boolean(do.branch(tx, arity("expect_true", args, keywords, 1)[0], lambda: True))


def _depends_on_data(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Tell whether data decides the sizes of a tensor, or what a size is."""
    (value,) = arity("has_free_unbacked_symbols", args, keywords, 1)
    return boolean(torch.fx.experimental.symbolic_shapes.has_free_unbacked_symbols(plugin.argument(value, True)))


def _lazy_property(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """A class is asked for a lazy property of its instances: only to see that it is one."""
    (wrapped,) = arity("lazy_property", args, keywords, 1)
    if not isinstance(wrapped, Function):
        raise Break("tracer.call", f"a lazy property is made of {wrapped.describe()}")
    wrapped.guard_identity(tx.guards)
    return tx.live.wrap(_LAZY_PROPERTY(wrapped.value), None)


_LAZY_PROPERTY: Any = torch.distributions.utils._lazy_property_and_property


def _one_hot(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Classes in row-major order: eager's result is row-major, and fake tensors' follows the classes."""
    if args and isinstance(args[0], TensorValue) and not args[0].fake.is_contiguous():
        args = [do.call_method(tx, args[0], "contiguous", [], {}), *args[1:]]
    return plugin.record(tx, "call_function", torch.nn.functional.one_hot, args, keywords)


def _recurrent(function: Any) -> Handler:
    """A recurrent network: on a GPU a library runs it, and keeps for the gradients what only the library knows."""

    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        given = [part for a in args for part in (a.items if isinstance(a, Items) else [a])]
        tensors = [part.fake for part in given if isinstance(part, TensorValue)]
        graded = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        if graded and any(t.device.type != "cpu" for t in tensors):
            raise Break("tracer.tensor_op", f"{function.__name__} is called on a GPU, and gradients are needed")
        return plugin.record(tx, "call_function", function, args, keywords)

    return handler


def _nothing(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    return NONE


def _result_type(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    return plugin.record(tx, "call_function", torch.result_type, args, keywords)


def _cuda_available(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    return boolean(torch.cuda.is_available())


def _annotate(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Words for nodes that another compiler reads: a context that does nothing."""
    return do.call(tx, tx.live.wrap(contextlib.nullcontext, None), [], {})


def _wrap_triton(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """A kernel that is marked as one to be captured: all are."""
    return arity("wrap_triton", args, keywords, 1)[0]


def _variable(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """The old name of tensors: what it makes of one shares its memory, and has no history."""
    (data,) = arity("Variable", args, keywords, 1)
    if not isinstance(data, TensorValue):
        raise Break("tracer.tensor_op", f"a Variable is made of {data.describe()}")
    return do.call_method(tx, data, "detach", [], {})


def _legacy(dtype: torch.dtype) -> Handler:
    """The class of tensors of a type: made of numbers; of sizes, its memory is what it was."""

    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        (data,) = arity("FloatTensor", args, keywords, 1)
        if not isinstance(data, Items) or data.type() not in (list, tuple):
            raise Break("tracer.tensor_op", f"a tensor of {dtype} is made of {data.describe()}")
        on: Keywords = {"dtype": Const(dtype), "device": Const(torch.device("cpu"))}
        return do.call(tx, tx.live.wrap(torch.tensor, None), [data], on)

    return handler


#: Others that give a tensor of a number, where they are given numbers alone.
_OF_NUMBERS = (torch.add, torch.sub, torch.subtract, torch.mul, torch.multiply, torch.true_divide)
_OF_AUTOCAST = (
    torch.is_autocast_enabled,
    torch.is_autocast_cache_enabled,
    torch.get_autocast_dtype,
)  # the others warn that they are old
_OF_DETERMINISM = (
    torch.are_deterministic_algorithms_enabled,
    torch.is_deterministic_algorithms_warn_only_enabled,
)
_LEGACY: dict[Any, torch.dtype] = {
    torch.FloatTensor: torch.float32,
    torch.DoubleTensor: torch.float64,
    torch.LongTensor: torch.int64,
    torch.IntTensor: torch.int32,
    torch.BoolTensor: torch.bool,
}


def _combine_masked(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """torch's own function makes a class at every call, which only masked tensors need."""
    return do.call(tx, tx.live.wrap(_combine, None), args, keywords)


def _combine(op: Any, input: Any, mask: Any, *args: Any) -> Any:
    if mask is None:
        return input
    masked: Any = torch.masked._ops
    return masked._where(
        masked._input_mask(input, mask=mask), input, masked._reduction_identity(op.__name__, input, *args)
    )


def _grouped_tensors(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Group tensors for `torch._foreach_*`, as clipping of gradients does, by a function that can be captured."""
    return do.call(tx, tx.live.wrap(_grouped, None), args, keywords)


def _grouped(lists: Any, with_indices: bool = False) -> Any:
    groups: Any = {}
    for position, tensor in enumerate(lists[0]):
        columns, positions = groups.setdefault((tensor.device, tensor.dtype), ([[] for _ in lists], []))
        for column, tensors in zip(columns, lists, strict=True):
            column.extend(tensors[position : position + 1])
        if with_indices:
            positions.append(position)
    return groups


HANDLERS: dict[Any, Handler] = {
    **cards.HANDLERS,
    **distributed.HANDLERS,
    **messages.HANDLERS,
    **generators.HANDLERS,
    **gradients.HANDLERS,
    **higher_order.HANDLERS,
    **inference.HANDLERS,
    **leaves.HANDLERS,
    **optimizers.HANDLERS,
    **overriding.HANDLERS,
    **function_subclasses.HANDLERS,
    **settings.HANDLERS,
    **transforms.HANDLERS,
    **{function: _recurrent(function) for function in (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)},
    torch.is_tensor: _is_tensor,
    torch.utils.checkpoint.checkpoint: call_checkpoint,
    torch._check: _check,
    torch._check_is_size: _check_is_size,
    torch.narrow: _narrow,
    len: _length,
    torch.fx.experimental.symbolic_shapes.expect_true: _expect_true,
    torch.fx.traceback.annotate: _annotate,
    torch.fx.experimental.symbolic_shapes.has_free_unbacked_symbols: _depends_on_data,
    _LAZY_PROPERTY: _lazy_property,
    torch._check_value: _check,
    torch._check_type: _check,
    torch._check_index: _check,
    torch.autograd.Variable: _variable,
    **{cls: _legacy(dtype) for cls, dtype in _LEGACY.items()},
    torch.cuda.is_available: _cuda_available,
    torch._C._log_api_usage_once: _nothing,
    torch._C._group_tensors_by_device_and_dtype: _grouped_tensors,
    torch.masked._ops._combine_input_and_mask: _combine_masked,
    torch.nn.functional.one_hot: _one_hot,
    torch.library.wrap_triton: _wrap_triton,
    torch.result_type: _result_type,
    torch.tensor: of_data(torch.tensor, tensor_from(torch.tensor)),
    torch.as_tensor: of_data(torch.as_tensor, tensor_from(torch.as_tensor)),
    torch.full: full,
    torch.div: divided(torch.div),
    torch.divide: divided(torch.divide),
    torch.floor_divide: divided(torch.floor_divide),
    **{function: of_known_numbers(function) for function in _OF_NUMBERS},
    torch.from_numpy: from_numpy,
    torch.is_grad_enabled: contexts.is_grad_enabled,
    torch._C._set_grad_enabled: contexts.set_grad_enabled,
    torch.get_default_device: default_device,
    torch.set_default_device: set_default_device,
    **{function: contexts.of_autocast(function) for function in _OF_AUTOCAST},
    **{function: contexts.of_determinism(function) for function in _OF_DETERMINISM},
    torch.autocast: contexts.make_autocast,
    torch.amp.autocast_mode.autocast: contexts.make_autocast,
    torch.cuda.amp.autocast: contexts.autocast_for("cuda"),
    torch.cpu.amp.autocast_mode.autocast: contexts.autocast_for("cpu"),
}
