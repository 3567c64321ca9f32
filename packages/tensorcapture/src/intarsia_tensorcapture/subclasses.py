"""Wrapper subclasses: tensors that are made of others, as `__tensor_flatten__` says.

The inner tensors are the inputs of the graph, and a node makes the tensor of them. What is done with it is recorded
like anything else: on fake tensors it runs the class's own `__torch_function__` and `__torch_dispatch__`. One that
leaves the frame is made anew, behind the graph, of inner tensors that the graph gives.
"""

from __future__ import annotations

import contextlib
import enum
import types
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from intarsia_ir import meta
from intarsia_ir.guards import (
    AbsentGuard,
    ConstantGuard,
    DictKeysGuard,
    HasAttributeGuard,
    IdentityGuard,
    LengthGuard,
    TensorGuard,
    TypeGuard,
)
from intarsia_ir.records import Source
from intarsia_ir.torch import Applied, Reassembled, ViewedAsNested, Wrap, is_jagged, is_wrapper
from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break, Unreconstructable
from intarsia_pyeval.trust import is_installed
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.functions import BoundMethod
from intarsia_shapes import marks_of
from intarsia_tensorcapture import nested
from intarsia_tensorcapture.computing import makers, rely_on_what_it_reads, what_else_it_does
from intarsia_tensorcapture.described import facts_of, tensors_in
from intarsia_tensorcapture.distributed_tensors import arrange, is_constant_placement, is_memo, is_mesh, is_spec
from intarsia_tensorcapture.scopes import apart
from intarsia_tensorcapture.subclass_gradients import with_history
from intarsia_tensorcapture.tables import ATOM_TYPES
from intarsia_tensorcapture.tensor import TensorValue, own_attribute

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["heard", "lift_parts", "made_inside"]


_CONSTANTS = (bool, int, float, complex, str, bytes, type(None), torch.Size, *ATOM_TYPES)
_BY_IDENTITY = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, enum.Enum)


def lift_parts(plugin: Recording, value: TensorValue) -> tuple[torch.fx.Node, Any]:
    """Make inputs of the graph of the tensors that an existing one is made of; rely on what else it is.

    Returns:
        The node that makes it of these, and its fake tensor.

    Raises:
        Break: It holds what no guard can check.
    """
    tx, real, source = plugin.tx, value.real, value.source
    assert real is not None
    wrap = Wrap.of(real)
    names = wrap.names
    if wrap.is_jagged:
        return nested.lift(plugin, value, wrap)
    whole = plugin.sizes.whole(value, real)
    if source is not None:
        _rely_on_attributes(plugin, real, source, without=names)
    _rely_on_code(plugin, type(real))
    inner = [
        tx.live.wrap(getattr(real, name), None if source is None else tx.sources.attribute(source, name))
        for name in names
    ]
    parts = [part for part in inner if isinstance(part, TensorValue)]
    if len(parts) < len(inner):
        raise Break("tracer.tensor_input", f"an inner tensor of a {_name(real)} isn't traced")
    plugin.sizes.settle_whole(whole, value, parts)
    nodes = [part.node for part in parts]
    shape = tuple(whole.shape), whole.stride()
    spelled = [tuple([_spelled(plugin, number) for number in numbers]) for numbers in shape]
    given = [node for numbers in spelled for node in numbers if isinstance(node, torch.fx.Node)]
    # a part may be made of others itself
    behind = max([*nodes, *given, *plugin.graph.find_nodes(op="placeholder")])
    with apart(plugin.scopes), plugin.state.outside_inference(), plugin.graph.inserting_after(behind):
        fake = plugin.propagate("call_function", wrap, [*shape, *map(_without_history, parts)], {})
        node = plugin.graph.call_function(wrap, (*spelled, *nodes))
    _refuse_lost(plugin, real, fake)
    if source is not None:
        tx.guards.add(TensorGuard, source, facts_of(real, fake))
    fake.requires_grad_(real.requires_grad)
    plugin.describe(node, fake)
    plugin.wrapped[value] = node, tx.steps.now
    return node, fake


def _refuse_lost(plugin: Recording, real: Any, fake: Any) -> None:
    """Break where code of the class reads a number or text that one which is made of the tensor's parts hasn't.

    Such a class says by `__tensor_flatten__` less than it reads: operations in the graph would see what it has instead.
    """
    read = plugin.relied_on.get(type(real), ())
    for name in [name for name in vars(real) if name in read and type(getattr(real, name)) in _COMPARED]:
        found, made = vars(real)[name], vars(fake).get(name, _LOST)
        if made is _LOST or (type(made) is type(found) and repr(made) != repr(found)):
            what = f"{name!r} of a {_name(real)}"
            raise Break("tracer.tensor_input", f"{what} isn't what __tensor_unflatten__ gives one that it makes")


_LOST = object()
_COMPARED = (bool, int, float, complex, str, bytes, type(None))


def heard(plugin: Recording, operands: Sequence[Any]) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which torch asks the classes of operands, where one is a wrapper, for their own functions.

    Raises:
        Break: The program has changed an object that a wrapper holds, which is as it was until the graph has run.
    """
    wrappers = [x for x in tensors_in(operands) if is_wrapper(x)]
    if wrappers and any(id(changed.identity()) in plugin.held for changed in plugin.tx.effects.places):
        raise Break("tracer.tensor_op", "an object that a tensor of a subclass holds was changed")
    if wrappers:
        return torch._C._EnableTorchFunction()  # type: ignore[no-any-return]
    return contextlib.nullcontext()


def _without_history(part: TensorValue) -> Any:
    """Return a fake inner tensor: that it requires grad is nothing to the tensor that is made of it."""
    return part.fake.detach() if part.fake.requires_grad and not is_wrapper(part.fake) else part.fake


def _spelled(plugin: Recording, number: Any) -> Any:
    """Return the node of a size, or the plain number."""
    return plugin.sizes.node_of(number, plugin.tx.frames.origin()) if isinstance(number, torch.SymInt) else number


def _name(tensor: torch.Tensor) -> str:
    return f"tensor of the subclass {type(tensor).__module__}.{type(tensor).__qualname__}"


# ---- one that the program makes


def made_inside(plugin: Recording, tx: Tracer, cls: Any, args: Sequence[Value], keywords: Keywords) -> Value | None:
    """Model `cls(...)` of a class of the user's: a node that makes the tensor; None for other classes.

    Raises:
        Break: Making it does more than compute, or it takes what no graph holds.
    """
    if not issubclass(cls, torch.Tensor) or not hasattr(cls, "__tensor_flatten__") or _is_of_torch(cls):
        return None
    for function in makers(tx, cls):
        doing = what_else_it_does(tx, function)
        if doing:
            raise Break("tracer.tensor_op", f"{function.value.__name__} of {cls.__qualname__} {doing}")
    _rely_on_code(plugin, cls)
    tensors: list[Value] = []
    arranged = arrange(tx, args, keywords, tensors)
    made = plugin.record(tx, "call_function", Applied(f"make_{cls.__name__}", cls, arranged), tensors, {})
    if not isinstance(made, TensorValue) or not is_wrapper(made.fake):
        raise Break("tracer.tensor_op", f"a {cls.__qualname__} is made, which is no {cls.__qualname__}")
    if made.fake.requires_grad:
        raise Break("tracer.tensor_op", f"a {cls.__qualname__} is made that requires grad: a leaf of its own")
    return made


# ---- what is relied on of the state beside the inner tensors


def _rely_on(plugin: Recording, value: Any, source: Source) -> None:
    """Guard that a value of the context is what it is, with all that it holds.

    Raises:
        Break: No guard can tell.
    """
    tx, kind = plugin.tx, type(value)
    if kind not in _CONSTANTS:
        plugin.held.add(id(value))
    if kind in _CONSTANTS:
        tx.guards.add(ConstantGuard, source, value)
    elif isinstance(value, _BY_IDENTITY):
        tx.guards.add(IdentityGuard, source, value)
    elif kind in (list, tuple):
        tx.guards.add(TypeGuard, source, kind)
        tx.guards.add(LengthGuard, source, len(value))
        for index, item in enumerate(value):
            _rely_on(plugin, item, tx.sources.item(source, index))
    elif is_mesh(value):
        tx.guards.add(IdentityGuard, source, value)
    elif is_constant_placement(kind):
        tx.guards.add(ConstantGuard, source, value)
    elif is_spec(kind) and all(map(is_constant_placement, map(type, value.placements))):
        tx.guards.add(ConstantGuard, source, value)  # equal ones may be of different meshes, whose groups differ
        tx.guards.add(IdentityGuard, tx.sources.attribute(source, "mesh"), value.mesh)
    elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
        tx.guards.add(TypeGuard, source, kind)
        for index, item in enumerate(value):
            _rely_on(plugin, item, tx.sources.item(source, index))
    elif kind is dict and all(type(key) in (str, int) for key in value):
        tx.guards.add(TypeGuard, source, kind)
        tx.guards.add(DictKeysGuard, source, tuple(value))
        for key, item in value.items():
            _rely_on(plugin, item, tx.sources.item(source, key))
    elif _is_plain_object(kind):
        tx.guards.add(TypeGuard, source, kind)
        _rely_on_attributes(plugin, value, source)
    else:
        raise Break("tracer.tensor_input", f"a tensor of a subclass holds a {kind.__qualname__}, which no guard checks")


def _rely_on_attributes(plugin: Recording, value: Any, source: Source, without: Sequence[str] = ()) -> None:
    """Guard which attributes an object has, since code of its class may ask for others, and all but some of them."""
    tx, own = plugin.tx, vars(value)
    tx.guards.add(DictKeysGuard, tx.sources.attribute(source, "__dict__"), tuple(own))
    filled = [name for name in _slots(type(value)) if hasattr(value, name)]
    for name in _slots(type(value)):
        tx.guards.add(HasAttributeGuard, source, name, name in filled)
    for name in (*own, *filled):
        found = getattr(value, name)
        marked = isinstance(value, torch.Tensor) and found is marks_of(value)
        if name not in without and not marked and not is_memo(type(value), name):
            _rely_on(plugin, found, tx.sources.attribute(source, name))


#: What of a class says how a tensor is taken apart and made: it is to be a function of the tensor.
_TAKES_APART = ("__tensor_flatten__", "__tensor_unflatten__")
_HANDLES = ("__torch_dispatch__", "__torch_function__")


def _rely_on_code(plugin: Recording, cls: Any) -> None:
    """Guard what a user's class reads from outside of its tensors, where it takes one apart and handles operations.

    Raises:
        Break: No guard can tell whether it would take a tensor apart in the same way.
    """
    tx = plugin.tx
    if cls in plugin.relied_on or is_installed(cls):
        return

    def rely(model: Value) -> None:
        if model.source is not None and model.identity() is not None:
            with contextlib.suppress(Break):  # what no guard can tell is left out
                _rely_on(plugin, model.identity(), model.source)

    names = plugin.relied_on[cls] = dict.fromkeys((*_TAKES_APART, *_HANDLES))
    done: set[str] = set()
    while ahead := [name for name in names if name not in done]:
        done.update(ahead)
        for name in ahead:
            model = _of_class(tx, cls, name)
            doing = "" if model is None else rely_on_what_it_reads(tx, model, rely, names)
            if doing and name in _TAKES_APART:
                raise Break("tracer.tensor_input", f"{name} of {cls.__qualname__} {doing}")


def _of_class(tx: Tracer, cls: Any, name: str) -> Value | None:
    """Model what a class of the user's has under a name, of a property its function; None for what code can't change.

    Which object an attribute is read of isn't known: a name that the class has is taken for the class's.
    """
    found: tuple[Any, int] | None = tx.classes.find(cls, name)
    if found is None or cls.__mro__[found[1]] is object or _is_of_torch(cls.__mro__[found[1]]):
        return None
    raw = found[0]
    owner = tx.live.class_value(cls)
    part = {staticmethod: "__func__", classmethod: "__func__", property: "fget"}.get(type(raw), "")
    if isinstance(getattr(raw, part) if part else raw, types.FunctionType):
        return tx.live.class_function(owner, cls, name, *((part,) if part else ()))
    if raw is None or hasattr(type(raw), "__get__"):
        return None
    with contextlib.suppress(Break):  # what no guard can tell is left out
        return do.get_attribute(tx, owner, name)
    return None


def _is_of_torch(cls: Any) -> bool:
    """Tell whether a class is torch's own, such as `DTensor` or `NestedTensor`."""
    return str(cls.__module__).partition(".")[0] == "torch"


def _slots(kind: type) -> list[str]:
    members = types.MemberDescriptorType
    return [name for base in kind.__mro__ for name, found in vars(base).items() if isinstance(found, members)]


_HEAP_TYPE = 1 << 9  # of a class's flags: a class of Python's, whose objects have no fields in C


def _is_plain_object(kind: type) -> bool:
    """Tell whether all that an object holds is in its dictionary and slots."""
    return kind.__dictoffset__ != 0 and all(base.__flags__ & _HEAP_TYPE for base in kind.__mro__[:-1])


# ---- attributes and methods of the class


@own_attribute.rule(TensorValue)
def own_attribute_of(tx: Tracer, tensor: TensorValue, name: str) -> Value | None:
    """Read an inner tensor, or evaluate a method, property or attribute that the user's class adds."""
    inner = (
        getattr(tensor.fake, name)
        if tensor.real is None and is_wrapper(tensor.fake) and name in _inner_names(tensor.fake)
        else None
    )
    if isinstance(inner, torch.Tensor):
        return inner_of(tensor, name)
    whole = tensor.fake if tensor.real is None else tensor.real
    if hasattr(torch.Tensor, name) and (is_wrapper(whole) or getattr(tensor.cls, name) is getattr(torch.Tensor, name)):
        return None
    found = next((vars(base)[name] for base in tensor.cls.__mro__ if name in vars(base)), None)
    set_on_it = None if found is None or hasattr(type(found), "__set__") else _set_on(tx, tensor, name)
    if set_on_it is not None:
        return set_on_it
    if isinstance(found, types.FunctionType):
        return BoundMethod(tx.live.class_function(tensor, tensor.cls, name), tensor)
    if isinstance(found, property) and isinstance(found.fget, types.FunctionType):
        return do.call(tx, tx.live.class_function(tensor, tensor.cls, name, "fget"), [tensor], {})
    if isinstance(found, (classmethod, staticmethod)) or (found is not None and not hasattr(type(found), "__get__")):
        return do.get_attribute(tx, tx.live.class_value(tensor.cls), name)
    return None


def _set_on(tx: Tracer, tensor: TensorValue, name: str) -> Value | None:
    """Read what was set on an existing tensor itself, which goes before what its class has; None, guarded: nothing."""
    if tensor.real is None:
        return None
    if name in vars(tensor.real):
        return tx.live.wrap(
            vars(tensor.real)[name], None if tensor.source is None else tx.sources.attribute(tensor.source, name)
        )
    if tensor.source is not None:
        tx.guards.add(AbsentGuard, tx.sources.attribute(tensor.source, "__dict__"), name)
    return None


def _inner_names(wrapper: Any) -> Sequence[str]:
    names: Sequence[str] = wrapper.__tensor_flatten__()[0]
    return names


def inner_of(tensor: TensorValue, name: str) -> Value:
    """Take an inner tensor out of one that the graph gives: the same as before, unless its class has put in another."""
    plugin, fake = tensor.plugin, getattr(tensor.fake, name)
    known = next((inner for inner in tensor.inner.values() if inner.fake is fake), None)
    if known is None:
        node = plugin.graph.call_function(getattr, (tensor.node, name))
        plugin.describe(node, fake)
        meta.set_origins(node, meta.origins(tensor.node))
        known = tensor.inner[name] = TensorValue(plugin, node, fake)
    return known


# ---- the border


@codegen.reconstruct.rule(TensorValue)
def reconstruct(out: Builder, tensor: TensorValue) -> None:
    """Make a tensor of a subclass of inner tensors that the graph gives."""
    if not is_wrapper(tensor.fake):
        raise Unreconstructable(f"{tensor.describe()} can't be built by bytecode")
    make: Any = Wrap.of(tensor.fake)
    parts: Sequence[Value]
    if tensor.fake.requires_grad and make.is_jagged:
        parts = [nested.values_of(tensor), *(inner_of(tensor, name) for name in make.names[1:])]
        make = ViewedAsNested(make)
    elif tensor.fake.requires_grad:
        make, parts = Reassembled(make), with_history(tensor)
    else:
        parts = [inner_of(tensor, name) for name in make.names]
    tx = tensor.plugin.tx
    numbers = ((), ()) if is_jagged(tensor.fake) else (tuple(tensor.fake.shape), tuple(tensor.fake.stride()))
    shape = [tx.live.from_python(given) for given in numbers]
    out.call(partial(out.constant, make), [partial(out.load, part) for part in (*shape, *parts)])
