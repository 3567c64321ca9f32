"""Subclasses of tensors that are tensors with a class of their own: `as_subclass`, and a `__torch_function__`.

The graph takes and gives plain tensors. What a class makes of an operation is evaluated (`overriding`); what is left
here is the border. An existing tensor goes in as a plain view of itself, and what leaves as an instance of the class is
made one behind the graph, of the plain tensor that the graph gives.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from intarsia_ir.guards import TensorGuard
from intarsia_ir.records import Role
from intarsia_ir.torch import is_wrapper
from intarsia_pyeval import codegen
from intarsia_pyeval.breaks import Break, Unreconstructable
from intarsia_pyeval.semantics import calling
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import FALSE, Const
from intarsia_pyeval.values.objects import ClassValue
from intarsia_pyeval.values.signatures import named
from intarsia_tensorcapture.described import PLAIN, facts_of, is_function_subclass
from intarsia_tensorcapture.tensor import TensorValue, as_subclass, require_grad

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["HANDLERS", "PlainView", "lift_plain", "made_of_class", "wrapper_of"]


class PlainView(TensorValue):
    """An input of the graph: the plain tensor that an existing one of a subclass is."""

    __slots__ = ("whole",)
    shared, role = False, Role.USER

    def __init__(self, whole: TensorValue, fake: Any, plain: torch.Tensor) -> None:
        super().__init__(whole.plugin, None, None)
        self.whole = whole
        whole.plugin.add_input(self, whole.source, fake, plain)

    @property
    def recorded(self) -> bool:
        """Tell that the graph takes it."""
        return False


@codegen.reconstruct.rule(PlainView)
def reconstruct(out: Builder, view: PlainView) -> None:
    """Show it as what it is."""
    out.call(partial(out.constant, _plain), [partial(out.load, view.whole)])


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    with torch._C.DisableTorchFunction():
        return tensor.as_subclass(torch.Tensor)


def lift_plain(plugin: Recording, value: TensorValue) -> tuple[torch.fx.Node, Any]:
    """Make an input of the graph of an existing tensor of a subclass; return its node and fake tensor."""
    real = value.real
    assert real is not None
    plain = _plain(real)
    fake = plugin.sizes.input(value, plain)
    view = PlainView(value, fake, plain)
    if value.source is not None:
        plugin.tx.guards.add(TensorGuard, value.source, facts_of(real, fake))
    return view.node, fake


# ---- making and showing them


@as_subclass.rule(TensorValue)
def as_subclass_of(tx: Tracer, tensor: TensorValue, cls: Value) -> Value:
    """Show a tensor as one of another class.

    Raises:
        Break: The class has more to say than what functions of torch do.
    """
    if not isinstance(cls, ClassValue) or not issubclass(cls.value, torch.Tensor) or is_wrapper(tensor.fake):
        raise Break("tracer.tensor_op", f"{tensor.describe()} is shown as {cls.describe()}")
    if cls.value not in PLAIN and not is_function_subclass(cls.value):
        raise Break("tracer.tensor_op", f"{tensor.describe()} is shown as a {cls.value.__qualname__}")
    return _shown(tx, tensor, cls.value, torch.ops.aten.alias.default)


def _shown(tx: Tracer, tensor: TensorValue, cls: Any, view: Any) -> TensorValue:
    made = tensor.plugin.record(tx, "call_function", view, [tensor], {})
    assert isinstance(made, TensorValue)
    made.cls = cls
    tensor.plugin.state.functions.possible |= cls not in PLAIN
    return made


def made_of_class(plugin: Recording, tx: Tracer, cls: Any, args: Sequence[Value], keywords: Keywords) -> Value | None:
    """Model `cls(...)` of such a subclass; None for other classes."""
    if cls in PLAIN or not is_function_subclass(cls):
        return None
    model, maker = tx.live.class_value(cls), tx.classes.find(cls, "__new__")
    if maker is None or isinstance(maker[0], (types.FunctionType, staticmethod)):
        return calling.instantiate(tx, model, args, keywords)
    tx.classes.rely_on_passing_over(model, cls, maker[1], "__new__")
    made = _new(plugin, tx, [model, *args], keywords)
    calling.initialise(tx, model, made, args, keywords)
    return made


def _new(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """`torch.Tensor.__new__(cls, tensor)`: the tensor itself, shown as one of the class."""
    if len(args) != 2 or keywords or not isinstance(args[1], TensorValue) or not isinstance(args[0], ClassValue):
        raise Break("tracer.tensor_op", "a tensor of a subclass is made of something else than a tensor")
    return as_subclass_of(tx, args[1], args[0])


def _make_subclass(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """`torch.Tensor._make_subclass(cls, data, require_grad)`: data without its history, shown as one of the class."""
    given = named("_make_subclass", args, keywords, ("cls", "data", "require_grad"), 2)
    cls, data, graded = given["cls"], given["data"], given.get("require_grad", FALSE)
    if not isinstance(cls, ClassValue) or not isinstance(data, TensorValue) or not is_function_subclass(cls.value):
        raise Break("tracer.tensor_op", f"{cls.describe()} is made of {data.describe()}")
    made = _shown(tx, data, cls.value, torch.ops.aten.detach.default)
    if not isinstance(graded, Const) or graded.value:
        return require_grad(tx, made, [graded], {})
    return made


HANDLERS: dict[Any, Any] = {torch.Tensor.__new__: _new, torch.Tensor._make_subclass: _make_subclass}


def wrapper_of(value: TensorValue, made: Any) -> tuple[Callable[..., Any], Sequence[Value]] | None:
    """Return what makes a result of its class of what the graph gives; None: it is plain.

    Args:
        value: The result.
        made: What else has to be made of it.

    Raises:
        Unreconstructable: Something has.
    """
    if value.cls in PLAIN or value.real is not None or is_wrapper(value.fake):
        return None
    if made is not None:
        raise Unreconstructable(f"{value.describe()} of a subclass is a leaf, or made in inference mode")
    return _as_class, [value.plugin.tx.live.class_value(value.cls)]


def _as_class(tensor: torch.Tensor, cls: type[torch.Tensor]) -> torch.Tensor:
    with torch._C.DisableTorchFunction():
        return tensor.as_subclass(cls)
