"""A stand-in for torchvision, which timm imports for its transforms and data sets; no model computes with it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

__all__ = ["stub_torchvision"]


class _Names(type):
    """A class that has any attribute, its name: timm reads members of torchvision's enumerations."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return f"{cls.__name__}.{name}"


class _Stub(ModuleType):
    """A module any of whose names is a class that can be inherited from, and that raises where it is made."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Names(name, (), {"__init__": _refuse, "__module__": self.__name__})
        setattr(self, name, made)
        return made


def _refuse(self: object, *_: Any, **__: Any) -> None:
    raise NotImplementedError(f"{type(self).__name__} of torchvision, which isn't installed")


class _Finder:
    """Finds any module of torchvision, and makes it a stub."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        if name.split(".")[0] != "torchvision":
            return None
        return importlib.machinery.ModuleSpec(name, _Finder, is_package=True)

    @staticmethod
    def create_module(spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Stub(spec.name)

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Nothing runs: names are made when they are asked for."""


def stub_torchvision() -> None:
    """Let `import torchvision` give stubs, unless it is installed."""
    if importlib.util.find_spec("torchvision") is None:
        sys.meta_path.append(_Finder)  # type: ignore[arg-type]
