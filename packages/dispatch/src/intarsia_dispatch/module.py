"""The wrapper around a compiled nn.Module: behaves like the module, keys its state as torch.compile's wrapper does."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from intarsia_ir.errors import UnsupportedError

__all__ = ["CompiledModule"]


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

    Hooks registered on the wrapper run around the compiled call, in eager; those of the original module are compiled.

    Args:
        module: The module as the user wrote it, kept as `_orig_mod`.
        call: Calls `module`, compiled.
        again: Compiles a module in the same way, so that copies and pickles compile again; it must be picklable itself.
    """

    def __init__(
        self, module: torch.nn.Module, call: Callable[..., Any], again: Callable[[torch.nn.Module], Any]
    ) -> None:
        super().__init__()
        self._orig_mod = module
        self._call = call
        self._again = again
        self._compiled_forward = _like(module.forward)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._forward_pre_hooks or self._forward_hooks or self._backward_pre_hooks or self._backward_hooks:
            return super().__call__(*args, **kwargs)
        if "forward" in self.__dict__:  # somebody put another in its place
            return super().__call__(*args, **kwargs)
        return self._call(*args, **kwargs)

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

    def __prepare_scriptable__(self) -> torch.nn.Module:
        """Return what torch.jit.script compiles in place of this module."""
        return self._orig_mod

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return super().__getattr__(name)
        return getattr(self._orig_mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        is_wrappers = name in torch.nn.Module.__dict__ or (name.startswith("_") and name in self.__dict__)
        if is_wrappers or name in ("_orig_mod", "_call", "_again", "_compiled_forward"):
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

    def train(self, mode: bool = True) -> CompiledModule:
        """Set the original module's training flag, and the wrapper's with it."""
        self._orig_mod.train(mode)
        self.__dict__["training"] = mode
        return self

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
        return self._again, (self._orig_mod,)


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
