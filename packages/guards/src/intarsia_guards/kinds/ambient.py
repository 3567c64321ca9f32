"""Guards on state that isn't a value of the frame: torch's modes and settings, and what the interpreter is doing."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from intarsia_guards.frame import Frame
from intarsia_guards.held import Held, hold
from intarsia_guards.rows import AmbientGuard
from intarsia_guards.words import brief
from intarsia_ir.dtypes import dtype_from_name
from intarsia_ir.observers import observer_keys
from intarsia_ir.records import GuardKind, GuardRecord

if TYPE_CHECKING:
    from intarsia_guards.codegen import TextWriter
    from intarsia_guards.native import NativeWriter

__all__ = [
    "HeldAutocast",
    "HeldDefaultDtype",
    "HeldDeterministic",
    "HeldGradMode",
    "HeldHandling",
    "HeldInferenceMode",
    "HeldTorchModes",
]


@dataclass(frozen=True, slots=True)
class HeldGradMode(AmbientGuard):
    """Whether gradients are recorded."""

    kind: ClassVar[GuardKind] = GuardKind.GRAD_MODE
    cost: ClassVar[int] = 12

    enabled: bool

    @classmethod
    def of(cls, record: GuardRecord) -> HeldGradMode:
        return cls(record.value, origin=record.origin, reason=record.reason)

    def look(self, frame: Frame) -> bool:
        return torch.is_grad_enabled()

    def check(self, actual: Any, frame: Frame) -> bool:
        return actual is self.enabled

    def native(self, writer: NativeWriter) -> None:
        writer.check("GRAD_MODE", -1, int(self.enabled))

    def text(self, writer: TextWriter) -> None:
        writer.require(f"{writer.constant(torch.is_grad_enabled)}() is {self.enabled}")

    def asked(self) -> str:
        return str(self.enabled)

    def seen(self, actual: Any, frame: Frame) -> str:
        return str(actual)


@dataclass(frozen=True, slots=True)
class HeldInferenceMode(AmbientGuard):
    """Whether inference mode is on."""

    kind: ClassVar[GuardKind] = GuardKind.INFERENCE_MODE
    cost: ClassVar[int] = 13

    enabled: bool

    @classmethod
    def of(cls, record: GuardRecord) -> HeldInferenceMode:
        return cls(record.value, origin=record.origin, reason=record.reason)

    def look(self, frame: Frame) -> bool:
        return torch.is_inference_mode_enabled()

    def check(self, actual: Any, frame: Frame) -> bool:
        return actual is self.enabled

    def native(self, writer: NativeWriter) -> None:
        writer.check("INFERENCE_MODE", -1, int(self.enabled))

    def text(self, writer: TextWriter) -> None:
        writer.require(f"{writer.constant(torch.is_inference_mode_enabled)}() is {self.enabled}")

    def asked(self) -> str:
        return str(self.enabled)

    def seen(self, actual: Any, frame: Frame) -> str:
        return str(actual)


_Devices = tuple[tuple[str, bool, torch.dtype], ...]


@dataclass(frozen=True, slots=True)
class HeldAutocast(AmbientGuard):
    """For each type of device whether autocast is on, and for which element type; and whether casts are kept.

    `keeps` is None where that isn't asked.
    """

    kind: ClassVar[GuardKind] = GuardKind.AUTOCAST
    cost: ClassVar[int] = 16

    devices: _Devices
    keeps: bool | None

    @classmethod
    def of(cls, record: GuardRecord) -> HeldAutocast:
        devices = tuple((v[0], v[1], _dtype(v[2])) for v in record.value if isinstance(v, tuple))
        keeps = record.value[-1] if len(record.value) > len(devices) else None
        return cls(devices, keeps, origin=record.origin, reason=record.reason)

    def look(self, frame: Frame) -> tuple[_Devices, bool | None]:
        state = tuple((d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d, _, _ in self.devices)
        return state, None if self.keeps is None else torch.is_autocast_cache_enabled()

    def check(self, actual: Any, frame: Frame) -> bool:
        return bool(actual == (self.devices, self.keeps))

    def native(self, writer: NativeWriter) -> None:
        for device, on, dtype in self.devices:
            number = writer.device(device, None)
            if number is None:
                writer.call(functools.partial(_autocast_is, device, on, dtype))
            else:
                writer.check("AUTOCAST", -1, on + 2 * writer.dtype(dtype), out=number[0])
        if self.keeps is not None:
            writer.check("AUTOCAST_CACHE", -1, int(self.keeps))

    def text(self, writer: TextWriter) -> None:
        enabled, dtype_of = writer.constant(torch.is_autocast_enabled), writer.constant(torch.get_autocast_dtype)
        for device, on, dtype in self.devices:
            writer.require(f"{enabled}({device!r}) is {on}")
            writer.require(f"{dtype_of}({device!r}) is {writer.constant(dtype)}")
        if self.keeps is not None:
            writer.require(f"{writer.constant(torch.is_autocast_cache_enabled)}() is {self.keeps}")

    def asked(self) -> str:
        return _autocast_text(self.devices, self.keeps)

    def seen(self, actual: Any, frame: Frame) -> str:
        return _autocast_text(*actual)


def _dtype(name: Any) -> torch.dtype:
    """Return the type that a record names (short, or as torch does)."""
    return name if isinstance(name, torch.dtype) else dtype_from_name(str(name).removeprefix("torch."))


def _autocast_is(device: str, on: bool, dtype: torch.dtype) -> bool:
    return torch.is_autocast_enabled(device) is on and torch.get_autocast_dtype(device) is dtype


def _autocast_text(devices: _Devices, keeps: bool | None) -> str:
    return brief((*devices, *([] if keeps is None else [keeps])))


@dataclass(frozen=True, slots=True)
class HeldDefaultDtype(AmbientGuard):
    """The default element type."""

    kind: ClassVar[GuardKind] = GuardKind.DEFAULT_DTYPE
    cost: ClassVar[int] = 14

    dtype: torch.dtype

    @classmethod
    def of(cls, record: GuardRecord) -> HeldDefaultDtype:
        return cls(record.value, origin=record.origin, reason=record.reason)

    def look(self, frame: Frame) -> torch.dtype:
        return torch.get_default_dtype()

    def check(self, actual: Any, frame: Frame) -> bool:
        return actual is self.dtype

    def native(self, writer: NativeWriter) -> None:
        writer.check("DEFAULT_DTYPE", -1, writer.dtype(self.dtype))

    def text(self, writer: TextWriter) -> None:
        writer.require(f"{writer.constant(torch.get_default_dtype)}() is {writer.constant(self.dtype)}")

    def asked(self) -> str:
        return str(self.dtype)

    def seen(self, actual: Any, frame: Frame) -> str:
        return str(actual)


@dataclass(frozen=True, slots=True)
class HeldDeterministic(AmbientGuard):
    """Whether operations must be deterministic, and whether it is only warned of those that aren't."""

    kind: ClassVar[GuardKind] = GuardKind.DETERMINISTIC
    cost: ClassVar[int] = 15

    enabled: bool
    warn_only: bool

    @classmethod
    def of(cls, record: GuardRecord) -> HeldDeterministic:
        return cls(*record.value, origin=record.origin, reason=record.reason)

    def look(self, frame: Frame) -> tuple[bool, bool]:
        return _deterministic_state()

    def check(self, actual: Any, frame: Frame) -> bool:
        return bool(actual == (self.enabled, self.warn_only))

    def native(self, writer: NativeWriter) -> None:
        writer.check("DETERMINISTIC", -1, self.enabled + 2 * self.warn_only)

    def text(self, writer: TextWriter) -> None:
        writer.require(f"{writer.constant(_deterministic_state)}() == ({self.enabled}, {self.warn_only})")

    def asked(self) -> str:
        return str((self.enabled, self.warn_only))

    def seen(self, actual: Any, frame: Frame) -> str:
        return str(actual)


def _deterministic_state() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


@dataclass(frozen=True, slots=True)
class HeldTorchModes(AmbientGuard):
    """Types of the torch function modes that are on, outermost first, of dispatch modes, and observers."""

    kind: ClassVar[GuardKind] = GuardKind.TORCH_MODES
    cost: ClassVar[int] = 17

    modes: tuple[Held[type | str], ...]

    @classmethod
    def of(cls, record: GuardRecord) -> HeldTorchModes:
        return cls(tuple(map(hold, record.value)), origin=record.origin, reason=record.reason)

    def look(self, frame: Frame) -> tuple[type | str, ...]:
        return _modes()

    def check(self, actual: Any, frame: Frame) -> bool:
        return bool(actual == tuple(mode.get() for mode in self.modes))

    def native(self, writer: NativeWriter) -> None:
        if self.modes:
            writer.call(lambda: self.holds_alone(_modes()))
        else:
            writer.check("NO_MODES", -1)

    def text(self, writer: TextWriter) -> None:
        writer.require(f"{writer.constant(torch._C._len_torch_function_stack)}() == {len(self.modes)}")
        writer.require(f"{writer.constant(torch._C._len_torch_dispatch_stack)}() == 0")
        writer.require(f"not {writer.constant(observer_keys)}()")
        if self.modes:
            expected = "".join(f"{writer.held(mode)}, " for mode in self.modes)
            writer.require(f"{writer.constant(_modes)}() == ({expected})")

    def asked(self) -> str:
        return brief(tuple(mode.get() for mode in self.modes))

    def seen(self, actual: Any, frame: Frame) -> str:
        return brief(actual)


def _modes() -> tuple[type | str, ...]:
    dispatch = _get_current_dispatch_mode_stack()
    return (*(type(mode) for mode in (*_get_current_function_mode_stack(), *dispatch)), *observer_keys())


@dataclass(frozen=True, slots=True)
class HeldHandling(AmbientGuard):
    """Whether the caller is handling an exception."""

    kind: ClassVar[GuardKind] = GuardKind.HANDLING
    cost: ClassVar[int] = 18

    handling: bool

    @classmethod
    def of(cls, record: GuardRecord) -> HeldHandling:
        return cls(record.value, origin=record.origin, reason=record.reason)

    def look(self, frame: Frame) -> bool:
        return _is_handling()

    def check(self, actual: Any, frame: Frame) -> bool:
        return actual is self.handling

    def native(self, writer: NativeWriter) -> None:
        writer.check("HANDLING", -1, int(self.handling))

    def text(self, writer: TextWriter) -> None:
        writer.require(f"{writer.constant(_is_handling)}() is {self.handling}")

    def asked(self) -> str:
        return str(self.handling)

    def seen(self, actual: Any, frame: Frame) -> str:
        return str(actual)


def _is_handling() -> bool:
    return sys.exception() is not None
