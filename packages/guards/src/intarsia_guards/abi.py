"""Where torch's native entries are: found by name in the loaded libraries, verified against Python's answers.

The extension is built without torch's headers, so that it fits every torch. What it needs of torch are
- functions of torch's C interface (`aoti_torch_*`) and a few plain C++ functions without arguments or with one small
  integer, by their symbols;
- two offsets: where a tensor's Python object keeps its implementation, and where that keeps its set of dispatch keys.
  They are found by looking for the values that Python gives (`Tensor._cdata`, `torch._C._dispatch_keys`) in a panel of
  tensors; all tensors of the panel must agree;
- the stretch of bytes in which the implementation has sizes, strides, types, device and key set, to compare them at
  once. It is used only if a change of any of these is seen in the bytes.
When anything is missing or doesn't agree, there is no native check, and the Python predicate does the work.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from intarsia_ir.observers import OBSERVER_KEYS, observer_keys

__all__ = ["addresses", "disagreement", "quietly"]

_SYMBOLS = {
    "libtorch_cpu.so": {
        "dtype": "aoti_torch_get_dtype",
        "device_type": "aoti_torch_get_device_type",
        "device_index": "aoti_torch_get_device_index",
        "n_dims": "aoti_torch_get_dim",
        "sizes": "aoti_torch_get_sizes",
        "strides": "aoti_torch_get_strides",
        "data": "aoti_torch_get_data_ptr",
        "storage_bytes": "aoti_torch_get_storage_size",
        "autocast": "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE",
        "autocast_dtype": "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE",
        "autocast_cache": "_ZN2at8autocast25is_autocast_cache_enabledEv",
        "context": "_ZN2at13globalContextEv",
        "deterministic": "_ZNK2at7Context23deterministicAlgorithmsEv",
        "warn_only": "_ZNK2at7Context31deterministicAlgorithmsWarnOnlyEv",
        "modes": "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv",
    },
    "libc10.so": {
        "requires_grad": "_ZNK3c1010TensorImpl13requires_gradEv",
        "grad_mode": "_ZN3c108GradMode10is_enabledEv",
        "inference_mode": "_ZN3c1013InferenceMode10is_enabledEv",
        "dispatch_modes": "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv",
        "key_included": "_ZN3c104impl28tls_is_dispatch_key_includedENS_11DispatchKeyE",
        "default_dtype": "_ZN3c1017get_default_dtypeEv",
    },
}
_IMPLEMENTATION_BYTES = 192  # no version of TensorImpl is smaller
_MOST_BYTES = 160  # MAX_SEEN of native.h


def addresses() -> dict[str, int]:
    """Return name -> address or offset, for `_native.bind`.

    Raises:
        LookupError: This torch lacks a symbol, or the offsets can't be told.
        OSError: A library of torch isn't where it should be.
    """
    with quietly():
        return _addresses()


def _addresses() -> dict[str, int]:
    values: dict[str, int] = {}
    folder = os.path.join(torch.__path__[0], "lib")
    for file, symbols in _SYMBOLS.items():
        library = ctypes.CDLL(os.path.join(folder, file))
        for name, symbol in symbols.items():
            try:
                values[name] = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0
            except AttributeError:
                raise LookupError(f"torch {torch.__version__} has no symbol {symbol}") from None
    panel = _panel()
    values["payload"] = _offset(
        [(id(t), torch._C.TensorBase.__basicsize__, t._cdata) for t in panel], "a tensor's implementation"
    )
    values["key_set"] = _offset(
        [(t._cdata, _IMPLEMENTATION_BYTES, torch._C._dispatch_keys(t).raw_repr()) for t in panel], "the dispatch keys"
    )
    values |= _metadata(values["key_set"])
    values |= _versions()
    values |= {f"observer_key{n}": int(key) for n, key in enumerate(OBSERVER_KEYS)}
    return values


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Run unseen by the user's modes, and as if inference mode were off."""
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch(), torch.inference_mode(False):
        yield


def disagreement(native: Any) -> str:
    """Return what the bound extension sees otherwise than Python does; "" when nothing.

    Args:
        native: The extension module, after `bind`.
    """
    with quietly():
        return _disagreement(native)


def _disagreement(native: Any) -> str:
    for tensor in _panel():
        _, device_type, _, requires_grad = native.tensor_facts(tensor)
        if (device_type == 0, requires_grad) != (tensor.is_cpu, tensor.requires_grad):
            return f"device and requires_grad of a {tensor.device} tensor"
    for scope in (torch.enable_grad, torch.no_grad, torch.inference_mode, _autocast):
        with scope():
            seen, expected = native.state(0), _state(native)
        if seen != expected:
            return f"the state under {scope.__name__}: {seen}, not {expected}"
    return ""


def _autocast() -> Any:
    return torch.autocast("cpu", torch.bfloat16)


def _state(native: Any) -> tuple[Any, ...]:
    """Return what `native.state(0)` must return, by Python's means."""

    def number(dtype: torch.dtype) -> int:
        return int(native.tensor_facts(torch.empty(0, dtype=dtype))[0])

    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        number(torch.get_default_dtype()),
        torch.are_deterministic_algorithms_enabled() + 2 * torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.is_autocast_enabled("cpu") + 2 * number(torch.get_autocast_dtype("cpu")),
        torch.is_autocast_cache_enabled(),
        torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack() + len(observer_keys()),
    )


def _panel() -> list[torch.Tensor]:
    """Return tensors whose objects, implementations and key sets differ."""
    makers: Sequence[Callable[[], torch.Tensor]] = (
        lambda: torch.empty(2, 3, device="cpu"),
        lambda: torch.empty(3, device="cpu", dtype=torch.complex64).conj(),
        lambda: torch.empty(2, device="meta", dtype=torch.float64, requires_grad=True),
        lambda: torch.nn.Parameter(torch.empty(1, device="cpu", dtype=torch.float32)),
    )
    tensors = [make() for make in makers]
    with torch.inference_mode():
        tensors.append(torch.empty(1, device="cpu"))
    return tensors


_SIZES, _STRIDES = (2003, 2005, 2007, 2009, 2011), (17, 90_001, 440_001, 550_003, 660_007)


def _metadata(key_set: int) -> dict[str, int]:
    """Return where metadata lie; zero bytes when that can't be told, and they are asked for one by one.

    Sizes and strides come one after the other, after the number of dimensions, and the key set comes last.
    """
    unknown = {"metadata": 0, "n_metadata": 0, "inline_dims": 0}

    def strided(n: int = 5, dtype: torch.dtype = torch.int8) -> torch.Tensor:
        return torch.empty_strided(_SIZES[:n], _STRIDES[:n], dtype=dtype, device="meta")

    base = strided()
    words = list(memoryview(ctypes.string_at(base._cdata, _IMPLEMENTATION_BYTES)).cast("Q"))
    try:
        first = words.index(_SIZES[0])
    except ValueError:
        return unknown
    start, n_bytes = 8 * (first - 1), key_set + 8 - 8 * (first - 1)
    if words[first - 1] != 5 or words[first : first + 10] != [*_SIZES, *_STRIDES] or not 0 < n_bytes <= _MOST_BYTES:
        return unknown

    def metadata(tensor: torch.Tensor) -> bytes:
        return ctypes.string_at(tensor._cdata + start, n_bytes)

    changed = [
        strided(4),
        strided(dtype=torch.uint8),
        strided(dtype=torch.float32),
        strided().transpose(0, 1),
        strided()[1:],
    ]
    one, conjugate = strided(dtype=torch.complex64), strided(dtype=torch.complex64).conj()
    cpu, meta = (torch.empty(0, dtype=torch.int8, device=device) for device in ("cpu", "meta"))
    pairs = [*((other, base) for other in changed), (one, conjugate), (cpu, meta)]
    is_complete = metadata(strided()) == metadata(base) and all(
        metadata(left) != metadata(right) for left, right in pairs
    )
    return {"metadata": start, "n_metadata": n_bytes, "inline_dims": 5} if is_complete else unknown


_COUNTER_BYTES = 24  # a table of virtual functions, counts of references, the count of writes


def _versions() -> dict[str, int]:
    """Return where the storage and the count of writes lie; zeros when that can't be told, and Python is asked.

    A detached tensor shares the counter, one from `.data` has a counter of its own; all three share the storage.
    """
    unknown = {"storage": 0, "counter": 0, "count": 0}
    written = [(torch.zeros(2, device="cpu"), n) for n in (3, 70, 201)]
    for tensor, n in written:
        for _ in range(n):
            tensor.add_(1)
    panel = _panel()  # which lives as long as its memory is read
    storages = [(t._cdata, _IMPLEMENTATION_BYTES, t.untyped_storage()._cdata) for t in panel]
    counters: set[int] = set(range(0, _IMPLEMENTATION_BYTES, 8))
    for tensor, _ in written:
        one, same, other = (_words(t._cdata) for t in (tensor, tensor.detach(), tensor.data))
        counters &= {8 * i for i, word in enumerate(one) if word and word == same[i] != other[i]}
    if len(counters) != 1:
        return unknown
    (counter,) = counters
    counts: set[int] = set(range(0, _COUNTER_BYTES, 4))
    for tensor, n in written:
        address = _words(tensor._cdata)[counter // 8]
        numbers = memoryview(ctypes.string_at(address, _COUNTER_BYTES)).cast("I")
        counts &= {4 * i for i, word in enumerate(numbers) if word == n}
    try:
        storage = _offset(storages, "a tensor's storage")
    except LookupError:
        return unknown
    return {"storage": storage, "counter": counter, "count": counts.pop()} if len(counts) == 1 else unknown


def _words(address: int) -> list[int]:
    return list(memoryview(ctypes.string_at(address, _IMPLEMENTATION_BYTES)).cast("Q"))


def _offset(rows: Sequence[tuple[int, int, int]], what: str) -> int:
    """Return the one offset at which each of (address, bytes, value) has its value.

    Raises:
        LookupError: There is none, or more than one.
    """
    common: set[int] | None = None
    for address, size, value in rows:
        words = memoryview(ctypes.string_at(address, size // 8 * 8)).cast("Q")
        offsets = {8 * i for i, word in enumerate(words) if word == value}
        common = offsets if common is None else common & offsets
    if common is None or len(common) != 1:
        raise LookupError(f"where {what} lies in torch {torch.__version__} can't be told: {sorted(common or ())}")
    return common.pop()
