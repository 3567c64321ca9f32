"""Guards on state that isn't a value of the frame: torch's modes and settings, and what the interpreter is doing."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from intarsia_guards.frame import Frame
from intarsia_guards.held import Held, hold
from intarsia_guards.rows import AmbientGuard
from intarsia_guards.words import brief
from intarsia_ir.dtypes import dtype_from_name
from intarsia_ir.guards import (
    AutocastGuard,
    DefaultDtypeGuard,
    DeterministicGuard,
    GradModeGuard,
    HandlingGuard,
    InferenceModeGuard,
    TorchModesGuard,
)
from intarsia_ir.modes import torch_modes
from intarsia_ir.observers import observer_keys
from intarsia_ir.records import GuardRecord

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
class HeldGradMode(AmbientGuard[GradModeGuard]):
    """Whether gradients are recorded."""

    record: ClassVar[type[GuardRecord]] = GradModeGuard
    cost: ClassVar[int] = 12

    enabled: bool

    @classmethod
    def of(cls, record: GradModeGuard) -> HeldGradMode:
        return cls(record.enabled, origin=record.origin, reason=record.reason)

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


@dataclass(frozen=True, slots=True)
class HeldInferenceMode(AmbientGuard[InferenceModeGuard]):
    """Whether inference mode is on."""

    record: ClassVar[type[GuardRecord]] = InferenceModeGuard
    cost: ClassVar[int] = 13

    enabled: bool

    @classmethod
    def of(cls, record: InferenceModeGuard) -> HeldInferenceMode:
        return cls(record.enabled, origin=record.origin, reason=record.reason)

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


_Devices = tuple[tuple[str, bool, torch.dtype], ...]


@dataclass(frozen=True, slots=True)
class HeldAutocast(AmbientGuard[AutocastGuard]):
    """For each type of device whether autocast is on, and for which element type; and whether casts are kept.

    `keeps` is None where that isn't asked.
    """

    record: ClassVar[type[GuardRecord]] = AutocastGuard
    cost: ClassVar[int] = 16

    devices: _Devices
    keeps: bool | None

    @classmethod
    def of(cls, record: AutocastGuard) -> HeldAutocast:
        devices = tuple((device, on, _dtype(name)) for device, on, name in record.devices)
        return cls(devices, record.keeps, origin=record.origin, reason=record.reason)

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


def _dtype(name: str) -> torch.dtype:
    """Return the type that a record names, short or as torch does."""
    return dtype_from_name(name.removeprefix("torch."))


def _autocast_is(device: str, on: bool, dtype: torch.dtype) -> bool:
    return torch.is_autocast_enabled(device) is on and torch.get_autocast_dtype(device) is dtype


def _autocast_text(devices: _Devices, keeps: bool | None) -> str:
    return brief((*devices, *([] if keeps is None else [keeps])))


@dataclass(frozen=True, slots=True)
class HeldDefaultDtype(AmbientGuard[DefaultDtypeGuard]):
    """The default element type."""

    record: ClassVar[type[GuardRecord]] = DefaultDtypeGuard
    cost: ClassVar[int] = 14

    dtype: torch.dtype

    @classmethod
    def of(cls, record: DefaultDtypeGuard) -> HeldDefaultDtype:
        return cls(record.dtype, origin=record.origin, reason=record.reason)

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


@dataclass(frozen=True, slots=True)
class HeldDeterministic(AmbientGuard[DeterministicGuard]):
    """Whether operations must be deterministic, and whether it is only warned of those that aren't."""

    record: ClassVar[type[GuardRecord]] = DeterministicGuard
    cost: ClassVar[int] = 15

    enabled: bool
    warn_only: bool

    @classmethod
    def of(cls, record: DeterministicGuard) -> HeldDeterministic:
        return cls(record.enabled, record.warn_only, origin=record.origin, reason=record.reason)

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


def _deterministic_state() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


@dataclass(frozen=True, slots=True)
class HeldTorchModes(AmbientGuard[TorchModesGuard]):
    """Types of the torch function modes that are on, outermost first, of dispatch modes, devices, and observers."""

    record: ClassVar[type[GuardRecord]] = TorchModesGuard
    cost: ClassVar[int] = 17

    modes: tuple[Held[type | str | torch.device], ...]

    @classmethod
    def of(cls, record: TorchModesGuard) -> HeldTorchModes:
        return cls(tuple(map(hold, record.modes)), origin=record.origin, reason=record.reason)

    def look(self, frame: Frame) -> tuple[type | str | torch.device, ...]:
        return torch_modes()

    def check(self, actual: Any, frame: Frame) -> bool:
        return bool(actual == tuple(mode.get() for mode in self.modes))

    def native(self, writer: NativeWriter) -> None:
        if self.modes:
            writer.call(lambda: self.holds_alone(torch_modes()))
        else:
            writer.check("NO_MODES", -1)

    def text(self, writer: TextWriter) -> None:
        if self.modes:
            expected = "".join(f"{writer.held(mode)}, " for mode in self.modes)
            writer.require(f"{writer.constant(torch_modes)}() == ({expected})")
            return
        writer.require(f"{writer.constant(torch._C._len_torch_function_stack)}() == 0")
        writer.require(f"{writer.constant(torch._C._len_torch_dispatch_stack)}() == 0")
        writer.require(f"not {writer.constant(observer_keys)}()")

    def asked(self) -> str:
        return brief(tuple(mode.get() for mode in self.modes))

    def seen(self, actual: Any, frame: Frame) -> str:
        return brief(actual)


@dataclass(frozen=True, slots=True)
class HeldHandling(AmbientGuard[HandlingGuard]):
    """Whether the caller is handling an exception."""

    record: ClassVar[type[GuardRecord]] = HandlingGuard
    cost: ClassVar[int] = 18

    handling: bool

    @classmethod
    def of(cls, record: HandlingGuard) -> HeldHandling:
        return cls(record.handling, origin=record.origin, reason=record.reason)

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


def _is_handling() -> bool:
    return sys.exception() is not None
