"""`nn.Module`: calls without hooks go straight to `forward`; what is registered is found without `__getattr__`."""

from __future__ import annotations

import sys
import types
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from intarsia_ir.guards import IdentityGuard, LengthGuard
from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.descriptors import is_plain_lookup
from intarsia_pyeval.semantics import storing
from intarsia_pyeval.stores import dict_store, instance_store
from intarsia_pyeval.stores.instance_store import real_dict
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.mappings import Dict
from intarsia_pyeval.values.objects import Object
from intarsia_tensorcapture.tensor import TensorValue

if TYPE_CHECKING:
    from intarsia_pyeval.state.classes import Classes
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["call_module", "module_attribute", "refuse_scripted", "set_module_attribute", "unpatched"]


_REGISTERED = ("_parameters", "_buffers", "_modules")
_HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
_GLOBAL_HOOKS = (
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
)
# of `Module.__call__`, before `forward`; up to 3.11 the slot counts as one
_FRAMES_OF_A_CALL = 2 + (sys.version_info < (3, 12))
_CALL = torch.nn.Module.__call__
_CALL_IMPL = torch.nn.Module._call_impl
_GETATTR = torch.nn.Module.__getattr__
_SETATTR = torch.nn.Module.__setattr__


class Registered(Dict):
    """A dict in which a module keeps what is registered. It is nobody else's, so it needs no guard against aliases."""

    __slots__ = ()
    shared = False


def call_module(
    plugin: Recording, tx: Tracer, callee: Object, args: Sequence[Value], keywords: Keywords
) -> Value | None:
    """Call a module. With hooks, its own `_call_impl` is evaluated."""
    found = tx.classes.find(callee.cls, "__call__")
    plain = found is not None and (found[0] is _CALL or _runs_a_graph(callee.cls, found[0]))
    if not plain or not is_plain_lookup(callee.cls):
        return None
    if found is not None and found[0] is not _CALL and callee.source is not None:  # made by torch, but not for good
        made = tx.sources.attribute(tx.sources.type_of(callee.source), "__call__")
        tx.guards.add(IdentityGuard, made, found[0])
    own = real_dict(callee.value) or {}
    compiled = own.get("_compiled_call_impl")
    # compiled in place by the compiler that captures here, its call is captured as any other's
    if compiled is not None and "_intarsia_compiled" not in getattr(compiled, "__dict__", {}):
        raise Break("tracer.call", "the module has its own compiled call")
    inner = tx.classes.find(callee.cls, "_call_impl")
    if "_call_impl" in callee.written or "_call_impl" in own:  # of this module alone
        return do.call(tx, do.get_attribute(tx, callee, "_call_impl"), args, keywords)
    instance_store.guard_absent(tx, callee, "_call_impl")
    if inner is None or inner[0] is not _CALL_IMPL or _has_hooks(plugin, tx, callee):
        function = tx.live.class_function(callee, callee.cls, "_call_impl")
        return do.call(tx, function, [callee, *args], keywords)
    forward = do.get_attribute(tx, callee, "forward")
    tx.frames.passed_over += _FRAMES_OF_A_CALL
    try:
        return do.call(tx, forward, args, keywords)
    finally:
        tx.frames.passed_over -= _FRAMES_OF_A_CALL


def _runs_a_graph(cls: Any, call: Any) -> bool:
    """Tell whether a class is one that `fx.GraphModule` makes for each of its objects, called as other modules are."""
    wrapper = vars(cls).get("_wrapped_call")
    made = isinstance(call, types.FunctionType) and call.__module__ == torch.fx.graph_module.__name__
    if not made or wrapper is None or wrapper.cls_call is not None:
        return False
    return next(vars(base)["__call__"] for base in cls.__mro__[1:] if "__call__" in vars(base)) is _CALL


def _has_hooks(plugin: Recording, tx: Tracer, callee: Object) -> bool:
    """Tell whether hooks are registered, for this module or for all; relies on the answer."""
    _guard_global_hooks(plugin, tx, callee)
    if any(getattr(torch.nn.modules.module, name) for name in _GLOBAL_HOOKS):
        return True
    own = real_dict(callee.value) or {}
    for name in _HOOKS:
        if name in callee.written or name in callee.read or own.get(name):
            hooks = instance_store.instance_attribute(tx, callee, name)
            if hooks is not None and do.length(tx, hooks):
                return True
        elif callee.source is not None:
            tx.guards.add(LengthGuard, instance_store.own_source(tx, callee, name), 0)
    return False


#: The code of what torch makes of functions that its compiler is to leave alone.
_LEFT_ALONE = vars(torch)["_disable_dynamo"](lambda: None).__code__


def refuse_scripted(callee: Object) -> None:
    """Break at a module that TorchScript compiled or traced: what it computes is in no Python.

    Raises:
        Break: It is one.
    """
    if issubclass(callee.cls, torch.nn.Module) and any(b.__module__ == "torch.jit._script" for b in callee.cls.__mro__):
        raise Break("tracer.call", f"{callee.describe()} was compiled by TorchScript: call what it was made of")


def unpatched(function: Any) -> Any:
    """Return the function of torch's that another compiler of torch has wrapped; None where none has.

    That is a method of `nn.Module`, wrapped to keep its own count of modules, or a function that it leaves alone.

    Once that compiler ran in a process, `nn.Module.__init__` and `__setstate__` are functions of it, with torch's own
    in their closure. What the wrapper adds is a mark for that compiler, on modules that it would trace.
    """
    if getattr(function, "__code__", None) is _LEFT_ALONE:
        return function.__wrapped__
    if function not in [vars(torch.nn.Module).get(name) for name in ("__init__", "__setstate__")]:
        return None
    if function.__module__ == torch.nn.modules.module.__name__:
        return None
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    found = [f for f in held if getattr(f, "__module__", None) == torch.nn.modules.module.__name__]
    return found[0] if len(found) == 1 else None


def _guard_global_hooks(plugin: Recording, tx: Tracer, callee: Object) -> None:
    """Rely on the hooks that hold for all modules, once for a capture."""
    if callee.source is None or plugin.hooks_guarded:
        return
    plugin.hooks_guarded = True
    if issubclass(callee.cls, torch.fx.GraphModule):
        names = tx.sources.attribute(tx.sources.module(torch.nn.modules.module.__name__), "__dict__")
    else:
        call = tx.sources.attribute(tx.sources.type_of(callee.source), "__call__")
        names = tx.sources.attribute(call, "__globals__")
    for name in _GLOBAL_HOOKS:
        real = getattr(torch.nn.modules.module, name)
        tx.guards.add(LengthGuard, tx.sources.item(names, name), len(real))


def module_attribute(tx: Tracer, owner: Object, name: str) -> Value | None:
    """Read a parameter, buffer or submodule; None when `name` is none of them."""
    if not _is_plain_module(tx.classes, owner):
        return None
    if name in _REGISTERED:
        return registered(tx, owner, name)
    own = real_dict(owner.value) or {}
    if name in owner.written or name in own or tx.classes.find(owner.cls, name) is not None:
        return None
    for kind in _REGISTERED:
        names = registered(tx, owner, kind)
        if names is not None and peek(names, name):
            instance_store.guard_absent(tx, owner, name)  # what is put into `__dict__` itself is found first
            return dict_store.find(tx, names, name)
    return None


def _is_plain_module(classes: Classes, owner: Object) -> bool:
    """Tell whether an object finds attributes as `nn.Module` does."""
    if not issubclass(owner.cls, torch.nn.Module) or not is_plain_lookup(owner.cls):
        return False
    classes.find(owner.cls, "__getattribute__")  # which is relied on
    getter = classes.find(owner.cls, "__getattr__")
    return getter is not None and getter[0] is _GETATTR


def registered(tx: Tracer, owner: Object, name: str) -> Dict | None:
    """Return one of the dicts in which a module keeps what is registered. Their classes aren't guarded."""
    if name in owner.written:
        found = owner.written[name]
        return found if isinstance(found, Dict) else None
    known = owner.read.get(name)
    if known is not None:
        return known if isinstance(known, Dict) else None
    real = (real_dict(owner.value) or {}).get(name) if owner.existing else None
    if type(real) is not dict:
        found = instance_store.instance_attribute(tx, owner, name)
        return found if isinstance(found, Dict) else None
    shared = tx.live.known(real)
    if isinstance(shared, Dict):
        return shared
    source = None if owner.source is None else instance_store.own_source(tx, owner, name)
    made = Registered(source=source, real=real)
    owner.read[name] = made
    tx.live.adopt(real, made)
    return made


def peek(names: Dict, key: Hashable) -> bool:
    """Tell whether a dict has a key, without relying on the answer."""
    if key in names.known:
        return True
    if names.complete or key in names.log:
        return False
    return names.real is not None and key in names.real


def set_module_attribute(tx: Tracer, owner: Object, name: str, value: Value | None) -> bool:
    """Set what is neither a parameter nor a module; tell whether it was done."""
    if value is None or not issubclass(owner.cls, torch.nn.Module):
        return False
    setter = tx.classes.find(owner.cls, "__setattr__")
    if setter is None or setter[0] is not _SETATTR or issubclass(value.type(), (torch.nn.Module, torch.nn.Parameter)):
        return False
    kinds: dict[str, Any] = {kind: registered(tx, owner, kind) for kind in _REGISTERED}
    if any(names is None for names in kinds.values()):
        return False
    if peek(kinds["_parameters"], name) or peek(kinds["_modules"], name):
        return False
    if peek(kinds["_buffers"], name):
        if not isinstance(value, TensorValue):
            return False
        dict_store.store(tx, kinds["_buffers"], name, tx.live.from_python(name), value)
        return True
    storing.plain_set_attribute(tx, owner, name, value)
    return True
