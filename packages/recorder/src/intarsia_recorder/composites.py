"""How composite ops come apart while a program runs on fake tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

__all__ = ["COMPOSITES_IN_CPP", "call_as_in_eager", "composites_in_python", "fill_diagonal"]

_NN, _ATEN = torch._C._nn, torch.ops.aten
_PACKETS = [_ATEN.softshrink, _ATEN.hardshrink, _ATEN.multi_margin_loss, _ATEN.multilabel_margin_loss]
_RESAMPLINGS = """
    _upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_lanczos2d_aa _upsample_nearest_exact1d
    _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_bicubic2d upsample_bilinear2d upsample_linear1d
    upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d
"""
_RESAMPLED = [getattr(_ATEN, name) for name in _RESAMPLINGS.split() if hasattr(_ATEN, name)]
_Call = tuple[Any, Sequence[Any], Mapping[str, Any]]  # a function, its arguments and keywords
_SIZED = {form: packet for packet in _RESAMPLED for form in (getattr(_NN, packet.__name__, packet), packet, packet.vec)}

#: Functions that run in their C++ form anyway. A dropout returns its operand where nothing is dropped, as in eager; the
#: Python form copies it. The Python form of `channel_shuffle` is row-major, whatever the operand is. Those of shrinking
#: functions lose signs of zeros and gradients at infinity, those of margin losses take targets that eager refuses, and
#: those of resampling index by a scale that eager ignores where a side keeps its size.
COMPOSITES_IN_CPP = frozenset(
    {
        torch.dropout,
        torch.nn.functional.dropout,
        torch.channel_shuffle,
        torch.hardshrink,
        torch.Tensor.hardshrink,
        _NN.softshrink,
        _NN.multi_margin_loss,
        _NN.multilabel_margin_loss,
        torch.nn.functional.multi_margin_loss,
        torch.nn.functional.multilabel_margin_loss,
        *_PACKETS,
        *[packet.default for packet in (*_PACKETS, *_RESAMPLED)],
    }
)


@contextlib.contextmanager
def composites_in_python(mode: FakeTensorMode) -> Iterator[None]:
    """Take composite ops apart in Python where sizes are symbolic: the C++ forms of some demand plain integers.

    Where sizes are static the C++ forms serve: they are faster, and what eager runs.

    Args:
        mode: Of the fake tensors; its environment tells whether sizes are symbolic.

    Example:
        >>> with composites_in_python(FakeTensorMode()):
        ...     torch.dropout(torch.ones(2), 0.5, False)
        tensor([1., 1.])
    """
    if mode.shape_env is None:
        yield
    else:
        with enable_python_dispatcher(), _AsInEager():
            yield


class _AsInEager(TorchFunctionMode):
    """Runs some composites in their C++ form."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call_as_in_eager(func, args, kwargs or {})


def call_as_in_eager(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a function whose operands may have symbolic sizes, under `composites_in_python`: some in their C++ form.

    The context does so by itself, but where torch functions are disabled, or called from a function of Python.

    Example:
        >>> call_as_in_eager(torch.dropout, (torch.ones(2), 0.5, False), {})
        tensor([1., 1.])
    """
    replacement = _in_cpp(function, args, kwargs)
    if replacement is None:
        return function(*args, **kwargs)
    function, args, kwargs = replacement
    with torch._C._DisablePythonDispatcher():
        return function(*args, **kwargs)


def _in_cpp(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Call | None:
    """Return what is called in its C++ form, with its arguments; None: the Python form serves."""
    if function in COMPOSITES_IN_CPP:
        return function, args, kwargs
    if function is torch.nn.functional.interpolate:
        interpolation = _interpolation(*args, **kwargs)
        if interpolation is None:
            return None
        function, args, kwargs = interpolation
    packet = _SIZED.get(function)
    return None if packet is None else _of_sizes(packet, args, kwargs)


def _interpolation(
    input: torch.Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> _Call | None:
    """Return the op that an interpolation calls, with its arguments; None: it is another one, or it will raise.

    What `interpolate` calls itself isn't seen here: a mode is off while it handles a function.
    """
    rank = input.dim() - 2
    name = _BY_MODE.get(f"{mode}{rank}d{'_aa' if antialias else ''}")
    packet = None if name is None else getattr(_ATEN, name, None)
    if packet is None or (size is None) == (scale_factor is None) or torch.are_deterministic_algorithms_enabled():
        return None
    sizes, scales = [
        list(value) if isinstance(value, (list, tuple)) else None if value is None else [value] * rank
        for value in (size, scale_factor)
    ]
    linear = "nearest" not in mode
    if len(sizes or scales or ()) != rank or (align_corners is not None and not linear):
        return None
    if not all(isinstance(n, (int, torch.SymInt)) for n in sizes or ()):
        return None
    if not all(isinstance(n, (int, float, torch.SymInt, torch.SymFloat)) for n in scales or ()):
        return None
    if recompute_scale_factor:
        if scales is None:
            return None
        sizes, scales = [_scaled(n, scale) for n, scale in zip(input.shape[2:], scales, strict=True)], None
    return packet, (input, sizes, *([bool(align_corners)] if linear else []), scales), {}


_BY_MODE = {
    **{f"nearest{rank}d": f"upsample_nearest{rank}d" for rank in (1, 2, 3)},
    **{f"nearest-exact{rank}d": f"_upsample_nearest_exact{rank}d" for rank in (1, 2, 3)},
    **{kind: f"upsample_{kind}" for kind in ("linear1d", "bilinear2d", "trilinear3d", "bicubic2d")},
    **{f"{kind}2d_aa": f"_upsample_{kind}2d_aa" for kind in ("bilinear", "bicubic", "lanczos")},
}


def _of_sizes(packet: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Call:
    """Return the op of given sizes that a resampling comes to, with its arguments.

    The C++ form computes sizes from scales only where all are plain integers. What it refuses it is given as it is.
    """
    names = [argument.name for argument in packet.vec._schema.arguments]
    arguments = {"output_size": None, "scale_factors": None} | dict(zip(names, args, strict=False)) | dict(kwargs)
    if len(args) > len(names) or set(arguments) != set(names):
        return packet, args, kwargs
    x, sizes, scales = arguments["input"], arguments["output_size"], arguments["scale_factors"]
    wanted = [n for n in (sizes, scales) if n is not None]
    if len(wanted) != 1 or not isinstance(wanted[0], (list, tuple)) or len(wanted[0]) != x.dim() - 2:
        return packet, args, kwargs
    if scales is not None:
        sizes = [_scaled(size, scale) for size, scale in zip(x.shape[2:], scales, strict=True)]
    between = [arguments["align_corners"]] if "align_corners" in arguments else []
    return packet.default, (x, sizes, *between, *(scales or [None] * len(sizes))), {}


def _scaled(size: Any, scale: float) -> Any:
    """Return a size times a scale, in doubles and cut off, as ATen computes it."""
    return size * int(scale) if scale == int(scale) else torch.sym_int(size * scale)


def fill_diagonal(tensor: torch.Tensor, fill_value: complex, wrap: bool = False) -> torch.Tensor:
    """Fill a diagonal as `Tensor.fill_diagonal_` does, through views of the tensor; it addresses the storage instead.

    Args:
        tensor: Of two dimensions or more; written.
        fill_value: The number.
        wrap: Go on after the last row of a square, as `Tensor.fill_diagonal_` says.

    Raises:
        RuntimeError: As eager does.

    Example:
        >>> fill_diagonal(torch.zeros(2, 3), 1)
        tensor([[1., 0., 0.],
                [0., 1., 0.]])
    """
    rank, sizes = tensor.dim(), tensor.shape
    wraps = wrap and rank == 2
    if rank < 2 or (rank > 2 and any(n != sizes[0] for n in sizes)) or (wraps and not _can_wrap(tensor)):
        return tensor.fill_diagonal_(fill_value, wrap)
    starts = range(0, sizes[0], sizes[1] + 1) if wraps else (0,)
    for start in starts:
        diagonal = (tensor[start:] if start else tensor).diagonal()
        for _ in range(rank - 2):
            diagonal = diagonal.diagonal(0, 0, -1)
        diagonal.fill_(fill_value)
    return tensor


def _can_wrap(tensor: torch.Tensor) -> bool:
    """Tell whether steps by address come to the elements that steps by index come to, and how many there are."""
    return all(type(n) is int for n in tensor.shape) and tensor.is_contiguous()
