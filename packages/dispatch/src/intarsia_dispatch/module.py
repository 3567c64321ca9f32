"""The wrapper around a compiled nn.Module: behaves like the module, keys its state as torch.compile's wrapper does."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from intarsia_dispatch.hooked_calls import has_hooks
from intarsia_dispatch.stand_in import bindable, knows_by_identity, stand_in
from intarsia_ir.errors import UnsupportedError

__all__ = ["CompiledModule", "without_wrapper"]


class _AsOriginal:
    """Descriptor of `forward`: bound to a compiled module it has the signature of the original module's."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __get__(self, module: CompiledModule | None, owner: type | None = None) -> Any:
        if module is None:
            return self.function
        return types.MethodType(vars(module)["_compiled_forward"], module)


class CompiledModule(torch.nn.Module):
    """A module whose call runs compiled; everything else is the original module's.

    It is an instance of the original's class by `isinstance`, not by `type`. Methods of the original that call the
    module (`generate`) call the compiled one; see `intarsia_dispatch.stand_in`. Hooks registered on the wrapper run
    around the compiled call, in eager; those of the original module are compiled. State is saved with the prefix
    `_orig_mod.`, and loaded with or without it.

    Args:
        module: The module as the user wrote it, kept as `_orig_mod`.
        compile_one: Returns a function that calls what it is given, compiled.
        again: Compiles a module in the same way, so that copies and pickles compile again; it must be picklable itself.
        compile_varying: As `compile_one`, for what the module's own methods call without gradients: such a method
            (`generate`) takes requests and makes steps of many sizes. None: as any other call.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        compile_one: Callable[[Callable[..., Any]], Callable[..., Any]],
        again: Callable[[torch.nn.Module], Any],
        compile_varying: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
    ) -> None:
        super().__init__()
        self._orig_mod = module
        self._compile_one = compile_one
        self._again = again
        self._call = compile_one(module)
        self._call_varying = compile_varying(module) if compile_varying is not None else self._call
        self._compiled_forward = _like(module.forward)
        self._stand_in_class: type | None = None
        self._stand_in: Callable[[], Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._has_hooks():
            return super().__call__(*args, **kwargs)
        return self._call(*args, **kwargs)

    def call_from_method(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module as its own methods do; see `compile_varying`."""
        if torch.is_grad_enabled() or self._has_hooks():
            return self(*args, **kwargs)
        return self._call_varying(*args, **kwargs)

    def _has_hooks(self) -> bool:
        """Tell whether a call is more than the original's: it has hooks, or somebody put in another forward."""
        hooks = self._forward_pre_hooks or self._forward_hooks or self._backward_pre_hooks or self._backward_hooks
        return bool(hooks) or "forward" in self.__dict__

    @_AsOriginal
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the original module, compiled, without the wrapper's hooks."""
        if type(args) is not tuple:  # torch.fx puts a stand-in for all of them here
            raise UnsupportedError(
                "torch.fx traces a module by the parameters of its forward, and a compiled one takes any",
                code="dispatch.traced",
                hints=("trace its _orig_mod, or a module that it is a part of",),
            )
        return self._call(*args, **kwargs)

    @property
    def forward_alone(self) -> Callable[..., Any]:
        """The original's `forward`, compiled, without any hooks: what `self.forward` is in its methods."""
        if "forward" not in self.__dict__ and not has_hooks(self._orig_mod):
            return self.forward  # type: ignore[no-any-return]
        if self.__dict__.get("_alone", (None,))[0] != self._orig_mod.forward:
            self.__dict__["_alone"] = self._orig_mod.forward, self._compile_one(self._orig_mod.forward)
        return self.__dict__["_alone"][1]  # type: ignore[no-any-return]

    @property
    def __class__(self) -> Any:
        """The class of the original, which is what `isinstance` asks for where the type doesn't fit."""
        return type(self.__dict__.get("_modules", {}).get("_orig_mod", self))

    @__class__.setter
    def __class__(self, value: type) -> None:
        # whoever derives from the class at hand, as `fully_shard` does, is to have derived from the wrapper's
        bases = tuple(type(self) if base is self.__class__ else base for base in value.__bases__)
        members = {name: item for name, item in vars(value).items() if name not in ("__dict__", "__weakref__")}
        vars(object)["__class__"].__set__(self, type(value)(value.__name__, bases, members))

    @property
    def training(self) -> bool:
        """The original's flag."""
        return self._orig_mod.training

    @training.setter
    def training(self, value: bool) -> None:
        if "_modules" in self.__dict__:  # else the wrapper is being made, and the original's flag is to stay
            self._orig_mod.training = value

    def __prepare_scriptable__(self) -> torch.nn.Module:
        """Return what torch.jit.script compiles in place of this module."""
        return self._orig_mod

    def __getattr__(self, name: str) -> Any:
        original: torch.nn.Module = super().__getattr__("_orig_mod")  # type: ignore[assignment]
        if name == "_orig_mod":
            return original
        # in captured code the original's method does the same, and what it calls is captured with it
        if self._has_hooks() or not torch.compiler.is_compiling():
            cls = type(original)
            if hasattr(cls, name) and bindable(cls) and not knows_by_identity(cls, name):
                return getattr(stand_in(self), name)
        return getattr(original, name)

    def __setattr__(self, name: str, value: Any) -> None:
        is_wrappers = name in torch.nn.Module.__dict__ or (name.startswith("_") and name in self.__dict__)
        if is_wrappers or name in _WRAPPERS:
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        if name == "forward" and name in self.__dict__:
            super().__delattr__(name)
        else:
            delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._orig_mod), "_orig_mod"})

    def _get_name(self) -> str:
        return type(self).__name__

    # what a module registers is looked for by the original's forward; what is applied is applied to each module once
    def register_buffer(self, *args: Any, **kwargs: Any) -> None:
        """Register a buffer in the original module."""
        self._orig_mod.register_buffer(*args, **kwargs)

    def register_parameter(self, *args: Any, **kwargs: Any) -> None:
        """Register a parameter in the original module."""
        self._orig_mod.register_parameter(*args, **kwargs)

    def add_module(self, *args: Any, **kwargs: Any) -> None:
        """Add a module to the original module."""
        self._orig_mod.add_module(*args, **kwargs)

    def register_module(self, *args: Any, **kwargs: Any) -> None:
        """Add a module to the original module."""
        self._orig_mod.add_module(*args, **kwargs)

    def apply(self, fn: Callable[[torch.nn.Module], None]) -> CompiledModule:
        """Apply `fn` to the original module and those in it."""
        self._orig_mod.apply(fn)
        return self

    # the wrapper itself has no state; torch would ask the original's class whether it has more than parameters
    def _save_to_state_dict(self, *args: Any, **kwargs: Any) -> None:
        pass

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Load state that was saved from the original or from the compiled module, whichever."""
        if any(key.startswith(_PREFIX) for key in state_dict):
            return super().load_state_dict(state_dict, *args, **kwargs)
        return self._orig_mod.load_state_dict(state_dict, *args, **kwargs)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: Any, strict: bool, *found: list[str]
    ) -> None:
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, *found)
        # in a module around this one, whose state was saved while this one wasn't compiled
        for key in [key for key in state_dict if key.startswith(prefix) and not key.startswith(prefix + _PREFIX)]:
            state_dict[prefix + _PREFIX + key.removeprefix(prefix)] = state_dict.pop(key)

    # Python looks these up on the class, so `__getattr__` doesn't reach them
    def __bool__(self) -> bool:
        return bool(self._orig_mod)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._orig_mod)  # type: ignore[call-overload,no-any-return]

    def __len__(self) -> int:
        return len(self._orig_mod)  # type: ignore[arg-type]

    def __getitem__(self, index: Any) -> Any:
        return self._orig_mod[index]  # type: ignore[index]

    def __reduce__(self) -> tuple[Any, ...]:
        kept = {name: item for name, item in vars(self).items() if "_hook" in name or name == "forward"}
        return self._again, (self._orig_mod,), kept


_PREFIX = "_orig_mod."
_WRAPPERS = (
    "__class__",
    "_orig_mod",
    "_call",
    "_call_varying",
    "_again",
    "_compile_one",
    "_compiled_forward",
    "_stand_in_class",
    "_stand_in",
)


def without_wrapper(function: Any) -> Any:
    """Return what to compile in place of a compiled module that is compiled again: its original, unless hooks are lost.

    Example:
        >>> without_wrapper(len) is len
        True
    """
    plain = isinstance(function, CompiledModule) and not any(function.__reduce__()[2].values())
    return function._orig_mod if plain else function


def _like(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the `forward` of a compiled module as a function with the signature and the words of the original's."""

    def forward(self: CompiledModule, *args: Any, **kwargs: Any) -> Any:
        return CompiledModule.forward(self, *args, **kwargs)

    forward.__doc__ = original.__doc__
    try:
        signature = inspect.signature(original)
    except (TypeError, ValueError):  # something written in C
        return forward
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    if first.name not in signature.parameters:
        parameters = [first, *signature.parameters.values()]
        forward.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return forward
