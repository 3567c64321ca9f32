"""The strides and types that eager's kernels give where fake tensors give others, by eager's rules.

Which ops have which, on which device, is a table (`intarsia_ir.eager.layouts`); here is what each rule comes to.
Checked against eager by tests, on the CPU and by the sweep over layouts on a GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch._ops import OpOverload
from torch._prims_common import compute_elementwise_output_strides, suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._mode_utils import no_dispatch

from intarsia_ir import eager
from intarsia_ir.eager import Layout, ResultType
from intarsia_recorder.iteration import is_known_dense, is_row_major, is_static, iterated_strides, known_numbers
from intarsia_recorder.operands import device_of, is_empty

__all__ = ["CORRECTIONS", "Correction", "correction_of"]

Correction = Callable[[FakeTensorMode, Any, Sequence[Any], Mapping[str, Any]], Any]


def _iterated(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Give strides in the order of the operands', as kernels do that iterate over all operands at once."""
    tensors = [x for x in args if isinstance(x, torch.Tensor) and x.dim()]
    if all(x.shape == result.shape and x.stride() == result.stride() for x in tensors):
        return result
    if len(tensors) > 1:
        shape = torch.broadcast_shapes(*[x.shape for x in tensors])
        tensors = [x.expand(shape) for x in tensors]
    if not tensors or tensors[0].shape != result.shape:
        return result
    return _with_strides(mode, result, compute_elementwise_output_strides(*tensors))


def _in_order(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Give strides in the order of eager's iteration: fake tensors guess others.

    They do for dimensions of one element, for operands that are repeated, and for those that are converted first.
    """
    tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)]
    common = _common_type(result, args) if isinstance(result, torch.Tensor) else None
    return _ordered(mode, result, tensors, [_converted_type(x, common) for x in tensors])


def _in_order_with_condition(
    mode: FakeTensorMode, result: torch.Tensor, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Give strides in the order of eager's iteration to `where`, which converts the values only."""
    return _ordered(mode, result, args, [args[0].dtype, result.dtype, result.dtype])


def _ordered(mode: FakeTensorMode, result: Any, tensors: Sequence[torch.Tensor], types: Sequence[torch.dtype]) -> Any:
    """Lay a result out in the order of operands that eager iterates over as tensors of these types."""
    if not isinstance(result, torch.Tensor) or result.dim() < 2:
        return result
    if not _has_single_dimension(result) and is_row_major(result) and all(_is_plain(x, result) for x in tensors):
        return result
    layouts = _known_layouts(result, *tensors)
    if layouts is None:
        return result
    (shape, unordered), *of_tensors = layouts
    laid = [
        torch.empty_strided(*layout, dtype=x.dtype, device="meta").to(dtype)
        for x, layout, dtype in zip(tensors, of_tensors, types, strict=True)
    ]
    strides = iterated_strides(laid, shape)
    if all(is_static(x) for x in (result, *tensors)):
        return _with_strides(mode, result, strides)
    return result if unordered == list(strides) else _in_order_of(mode, result, strides)


def _known_layouts(*tensors: torch.Tensor) -> list[tuple[list[int], list[int]]] | None:
    """Return sizes and strides of each tensor in the first call; None where one isn't known."""
    layouts = []
    for x in tensors:
        shape, strides = known_numbers(x.shape), known_numbers(x.stride())
        if shape is None or strides is None:
            return None
        layouts.append((shape, strides))
    return layouts


def _is_plain(x: torch.Tensor, result: torch.Tensor) -> bool:
    """Tell whether an operand is row-major and of the result's shape, by the sizes of the first call, or a number."""
    return x.dim() == 0 or (is_row_major(x) and known_numbers(x.shape) == known_numbers(result.shape))


def _converted_type(x: torch.Tensor, common: torch.dtype | None) -> torch.dtype:
    """Return the type in which eager iterates over an operand: kernels of the CPU convert it in front of them."""
    if common is None or x.dim() == 0 or device_of(x) != "cpu" or x.is_complex():
        return x.dtype
    return common


def _common_type(result: torch.Tensor, args: Sequence[Any]) -> torch.dtype | None:
    """Return what eager converts operands to, where it does: the result's type, but for what answers with bools."""
    if result.dtype is torch.bool:
        numbers = (torch.Tensor, bool, int, float, complex)
        both = len(args) > 1 and isinstance(args[0], numbers) and isinstance(args[1], numbers)
        return torch.result_type(args[0], args[1]) if both else None
    of_parts = result.is_complex() and not any(isinstance(x, torch.Tensor) and x.is_complex() for x in args)
    return None if of_parts else result.dtype


def _without_normed(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A norm over dimensions of one element: torch before 2.13 keeps those that are counted from the end."""
    dim, keepdim = args[2] if len(args) > 2 else None, args[3] if len(args) > 3 else False
    normed = {d % (args[0].dim() or 1) for d in dim or ()}
    if keepdim or not normed or result.dim() == args[0].dim() - len(normed):
        return result
    with mode:
        return result.reshape([n for d, n in enumerate(args[0].shape) if d not in normed])


def _in_order_with_numbers(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Give strides in the order of eager's iteration to ops that make a 0-dim operand of a number."""
    if not isinstance(result, torch.Tensor) or result.dim() < 2:
        return result
    common = _common_type(result, args)
    operands = [_ONE if isinstance(x, bool | int | float | complex) else x for x in args]
    tensors = [x for x in (*operands, *kwargs.values()) if isinstance(x, torch.Tensor)]
    return _ordered(mode, result, tensors, [_converted_type(x, common) for x in tensors])


def _in_order_of_second(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Give strides in the order of eager's iteration to ops that iterate over their second operand first."""
    return _in_order(mode, result, (args[1], args[0]), kwargs)


def _like_integers(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """`isinf` of what has no infinities makes something like it; else it compares absolute values with a number."""
    if not args[0].is_floating_point() and not args[0].is_complex():
        return _as_first_operand(mode, result, args, kwargs)
    absolute = _in_order(mode, result, args, kwargs)
    return _in_order_with_numbers(mode, absolute, (absolute, 1.0), kwargs)


def _as_dense_operand(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Give dimensions of one element the strides of the operand, where it is dense."""
    preserved = kwargs.get("memory_format") in (None, torch.preserve_format)
    if not preserved or not _has_single_dimension(result) or not is_known_dense(args[0]):
        return result
    return _with_strides(mode, result, args[0].stride())


def _each_as_dense_operand(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Give dimensions of one element of each result the strides of the operand, where it is dense."""
    return tuple(_as_dense_operand(mode, each, args, {}) for each in result)


_ONE = torch.ones(())


def _has_single_dimension(result: Any) -> bool:
    if not isinstance(result, torch.Tensor) or result.dim() < 2:
        return False
    return any(type(size) is int and size == 1 for size in result.shape)


def _both(first: Correction, second: Correction) -> Correction:
    """Return the correction that makes one and then another."""
    return lambda mode, result, args, kwargs: second(mode, first(mode, result, args, kwargs), args, kwargs)


def _product_with_power(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """`ldexp` multiplies by powers of 2: of a tensor, whose powers keep the exponent's order, or of a number."""
    x, exponent = args[:2]
    of_tensor = x.dtype in _HALVES_AND_DOUBLE or (x.dtype is torch.float32 and not exponent.is_floating_point())
    with mode:
        base = torch.full((), 2.0, dtype=exponent.dtype, device=exponent.device) if of_tensor else 2.0
        return torch.mul(x, torch.pow(base, exponent))


_HALVES_AND_DOUBLE = (torch.float16, torch.bfloat16, torch.float64)


def _contiguous(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Make the first result row-major, or both where both have the operand's shape."""
    if isinstance(result, torch.Tensor):
        return _row_major(mode, result)
    return tuple([_row_major(mode, x) if isinstance(x, torch.Tensor) else x for x in result])


def _row_major(mode: FakeTensorMode, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in order, dimensions of one element included."""
    if not _has_single_dimension(tensor) or not is_static(tensor):
        return tensor.contiguous()
    strides = torch.empty(tensor.shape, device="meta").stride()
    return _with_strides(mode, tensor, strides)


def _suggested(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Lay the first of several results out by the memory format that suits the operand."""
    first, *rest = result
    return (first.contiguous(memory_format=_format_of(args[0])), *rest)


def _in_format(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Lay the result out by the memory format that suits the operand."""
    return _formatted(mode, result, _format_of(args[0]))


def _in_format_of_second(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Lay the result out by the memory format that suits the second operand."""
    return _formatted(mode, result, _format_of(args[1]))


def _formatted(mode: FakeTensorMode, result: torch.Tensor, memory_format: torch.memory_format) -> torch.Tensor:
    """Return a tensor with the strides of a new one of a memory format."""
    if not is_static(result):
        with mode:
            return torch.empty(result.shape, dtype=result.dtype, device=result.device, memory_format=memory_format)
    return _with_strides(mode, result, torch.empty(result.shape, device="meta", memory_format=memory_format).stride())


def _format_of(tensor: torch.Tensor) -> torch.memory_format:
    """Return the memory format that suits a tensor, for the sizes of the first call where they are open."""
    shape, strides = known_numbers(tensor.shape), known_numbers(tensor.stride())
    if shape is None or strides is None:
        return suggest_memory_format(tensor)
    return suggest_memory_format(torch.empty_strided(shape, strides, device="meta"))


def _rolled(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The two parts of each dimension are joined; without dimensions, the elements in order are rolled."""
    dims, shifts = kwargs.get("dims", args[2] if len(args) > 2 else ()), args[1]
    if not dims or is_empty(args[0]):
        return result if dims else _row_major(mode, result)
    dims, shifts = [[x] if isinstance(x, int) else x for x in (dims, shifts)]
    if not is_static(args[0]) or not all(type(shift) is int for shift in shifts):
        return _in_format(mode, result, args, kwargs)
    with no_dispatch():
        x = torch.empty_strided(args[0].shape, args[0].stride(), device="meta")
        for dim, shift in zip(dims, shifts, strict=True):
            start = (x.shape[dim] - shift) % x.shape[dim]
            x = torch.cat([x.narrow(dim, start, x.shape[dim] - start), x.narrow(dim, 0, start)], dim)
    return _with_strides(mode, result, x.stride())


def _row_major_of_complex(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return (_contiguous if args[0].is_complex() else _in_order)(mode, result, args, kwargs)


def _as_target(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Lay a gradient out that eager computes step by step from the third operand."""
    return _iterated(mode, result, (args[2],), kwargs)


def _as_second_operand(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Lay a gradient out as `empty_like` of the second operand; the first one is the tangent."""
    return _as_first_operand(mode, result, args[1:], kwargs)


def _as_first_operand(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Lay a result of the first operand's shape out as `empty_like` of it."""
    if result.shape != args[0].shape:
        return result
    with mode:
        return _with_strides(mode, result, torch.empty_like(args[0]).stride())


def _shuffled(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return result if is_empty(args[0]) else _in_format(mode, result, args, kwargs)


def _indexed(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Order the dimensions as eager's iteration over the operand and the indices does; fake tensors forget these."""
    places = [place for place, index in enumerate(args[1]) if index is not None]
    indices = [args[1][place] for place in places]
    if any(i.dtype in (torch.bool, torch.uint8) for i in indices) or all(i.dim() < 2 for i in indices):
        return result
    layouts = _known_layouts(result, args[0], *indices)
    if layouts is None:
        return result
    (shape, _), (_, strides), *of_indices = layouts
    # what is indexed makes room for the shape of the indices; it moves to the front if it isn't side by side
    before = places[0] if places[-1] - places[0] == len(places) - 1 else 0
    rest = [n for dim, n in enumerate(strides) if dim not in places]
    n_indexed = len(shape) - len(rest)
    behind = [1] * (len(rest) - before)
    source = torch.empty_strided(shape, [*rest[:before], *[0] * n_indexed, *rest[before:]], device="meta")
    room = torch.empty(shape[before : before + n_indexed], device="meta")
    laid = [torch.empty_strided(*layout, device="meta").expand(room.shape) for layout in of_indices]
    if device_of(args[0]) != "cpu" and any(x.stride() != laid[0].stride() for x in laid):
        laid = [x.contiguous() for x in laid]
    laid = [x.reshape([*[1] * before, *room.shape, *behind]) for x in laid]
    return _in_order_of(mode, result, iterated_strides([source, *laid], shape))


def _in_order_of(mode: FakeTensorMode, result: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """Lay a dense result out in the order of strides, which are those of the first call's sizes.

    A dimension of one element has the stride of the one that comes after it, if that has more.
    """
    single = [type(size) is int and size == 1 for size in result.shape]
    dense: list[Any] = [1] * result.dim()
    size: Any = 1
    for dim in sorted(range(result.dim()), key=lambda dim: (strides[dim], not single[dim], -dim)):
        dense[dim], size = size, size * result.shape[dim]
    return _with_strides(mode, result, dense)


def _transformed(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A Fourier transform batches the other dimensions: those it goes along lie innermost.

    Source: aten/src/ATen/native/mkl/SpectralOps.cpp, `_exec_fft`; torch 2.11's meta kernels make the result row-major.
    """
    x, dims = args[0], [dim % args[0].dim() for dim in args[1]]
    strides = known_numbers(x.stride())
    if strides is None or not dims:
        return result
    last = dims[-1:] if x.is_complex() != result.is_complex() else []  # goes last, whatever its stride
    others = _by_stride(strides, dims[: len(dims) - len(last)])
    if result.is_complex():
        order = [*_others_by_stride(strides, dims), *others, *last]
    else:  # from what the others gave
        between = _strides_by_rank([*_others_by_stride(strides, others), *others]) if others else strides
        order = [*_others_by_stride(between, last), *last]
    return _in_order_of(mode, result, _strides_by_rank(order))


def _by_stride(strides: Sequence[int], dims: Sequence[int]) -> list[int]:
    """Return dimensions, the slowest one first."""
    return sorted(dims, key=lambda dim: -strides[dim])


def _others_by_stride(strides: Sequence[int], dims: Sequence[int]) -> list[int]:
    return _by_stride(strides, [dim for dim in range(len(strides)) if dim not in dims])


def _strides_by_rank(order: Sequence[int]) -> list[int]:
    """Return numbers that order dimensions as strides do, of dimensions from the slowest to the fastest one."""
    return [len(order) - order.index(dim) for dim in range(len(order))]


def _unchanged(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return result


def _like_clone_of_repeated(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Writing into a part of a tensor that shows elements several times, eager writes into its clone."""
    x = args[0]
    strides = zip(x.stride(), x.shape, strict=True)
    if not any(type(s) is int and s == 0 and not (type(n) is int and n < 2) for s, n in strides):
        return result
    with mode:
        return _with_strides(mode, result, x.clone().stride())


def _first_iterated(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Lay the first of several results out as a kernel does that iterates over the operand."""
    first, *rest = result
    return (_iterated(mode, first, args, kwargs), *rest)


def _first_as_operand(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Lay the first of several results out as `empty_like` of the operand."""
    first, *rest = result
    with mode:
        strides = torch.empty_like(args[0]).stride()
    return (_with_strides(mode, first, strides), *rest)


def _running_types(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """New running statistics have the types of the old ones."""
    *rest, mean, var = result
    return (*rest, mean.to(args[3].dtype), var.to(args[4].dtype))


def _of_first_type(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Give the result the type of the first operand, as kernels do that write into something like it."""
    return result.to(args[0].dtype)


def _of_promoted_types(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Promote the operands' types as if none had fewer dimensions than another."""
    types = [x.dtype for x in args if isinstance(x, torch.Tensor)]
    if not types[0].is_floating_point:
        return result
    return result.to(functools.reduce(torch.promote_types, types))


def _statistics(
    rule: eager.ParameterTypes, mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Give the statistics of a normalisation their type."""
    first, mean, deviation, *rest = result
    others = {x.dtype for x in args[1:] if isinstance(x, torch.Tensor)}
    if not rule.is_mixed(args[0].dtype, others):
        return result
    return (first, mean.to(rule.parameters), deviation.to(rule.parameters), *rest)


def _power_of_bool(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A bool tensor to the power of a bool is one of bools."""
    dtype = torch.result_type(args[0], args[1])
    return result.to(dtype) if dtype is torch.bool else result


def _empty_mask(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The mask of a dropout of nothing is of the operand's type."""
    value, mask = result
    if args[0].dtype is torch.bool or args[0].numel() != 0:
        return result
    return value, mask.to(args[0].dtype)


def _counted(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Places and counts are 64-bit integers; torch before 2.12 predicts the operand's type."""
    first, *rest = result
    return (first, *(x.to(torch.int64) for x in rest))


def _dimension_outside(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What differs along a dimension is found with that dimension in front, and moved back without a copy."""
    first, *rest = result
    dims = [x for x in (*args[1:], *kwargs.values()) if type(x) is int]  # the other operands are bools
    if not dims or not first.dim():
        return result
    dim = dims[0] % first.dim()
    shape = [first.shape[dim], *first.shape[:dim], *first.shape[dim + 1 :]]
    with mode:
        strides = torch.empty(shape, dtype=first.dtype, device=first.device).movedim(0, dim).stride()
        # no question whether they differ: the size may depend on data
        laid = torch.empty_strided(first.shape, strides, dtype=first.dtype, device=first.device)
    return (laid, *rest)


def _weighed(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Counts are 64-bit integers, sums of weights float32 or double; torch before 2.12 predicts the operand's type."""
    weights = kwargs.get("weights", args[1] if len(args) > 1 else None)
    if weights is None:
        return result.to(torch.int64)
    return result.to(torch.float32 if weights.dtype is torch.float32 else torch.float64)


def _with_strides(mode: FakeTensorMode, result: torch.Tensor, strides: Sequence[Any]) -> torch.Tensor:
    if result.stride() == tuple(strides):
        return result
    with mode:
        return torch.empty_strided(result.shape, strides, dtype=result.dtype, device=result.device)


#: Rule -> what gives a result what it says.
CORRECTIONS: Mapping[eager.Rule, Correction] = MappingProxyType(
    {
        Layout.ITERATED: _iterated,
        Layout.IN_ORDER: _in_order,
        Layout.IN_ORDER_WITH_NUMBERS: _in_order_with_numbers,
        Layout.IN_ORDER_OF_SECOND: _in_order_of_second,
        Layout.IN_ORDER_WITH_CONDITION: _in_order_with_condition,
        Layout.AS_DENSE_OPERAND: _as_dense_operand,
        Layout.EACH_AS_DENSE_OPERAND: _each_as_dense_operand,
        Layout.ROW_MAJOR: _contiguous,
        Layout.ROW_MAJOR_OF_COMPLEX: _row_major_of_complex,
        Layout.LIKE_INTEGERS: _like_integers,
        Layout.FIRST_SUGGESTED: _suggested,
        Layout.FIRST_AS_OPERAND: _first_as_operand,
        Layout.FIRST_ITERATED: _first_iterated,
        Layout.FORMAT: _in_format,
        Layout.FORMAT_OF_SECOND: _in_format_of_second,
        Layout.FORMAT_OF_SHUFFLED: _shuffled,
        Layout.AS_FIRST_OPERAND: _as_first_operand,
        Layout.AS_SECOND_OPERAND: _as_second_operand,
        Layout.AS_TARGET: _as_target,
        Layout.LIKE_CLONE_OF_REPEATED: _like_clone_of_repeated,
        Layout.INDEXED: _indexed,
        Layout.ROLLED: _rolled,
        Layout.TRANSFORMED: _transformed,
        Layout.PRODUCT_WITH_POWER: _product_with_power,
        Layout.WITHOUT_NORMED: _without_normed,
        Layout.DIMENSION_OUTSIDE: _dimension_outside,
        Layout.UNCHANGED: _unchanged,
        ResultType.OF_FIRST: _of_first_type,
        ResultType.PROMOTED: _of_promoted_types,
        ResultType.OF_RUNNING: _running_types,
        ResultType.BOOL_OF_BOOLS: _power_of_bool,
        ResultType.EMPTY_MASK: _empty_mask,
        ResultType.COUNTED: _counted,
        ResultType.WEIGHED: _weighed,
    }
)


def _order_of(overload: str) -> Correction:
    """Return what orders the dimensions: only where an operand may be a number, numbers count as operands."""
    return _in_order_with_numbers if overload.startswith("Tensor") or "calar" in overload else _in_order


def correction_of(func: OpOverload) -> Correction | None:
    """Return what gives the result of an overload the strides and the type that eager gives it; None: nothing to do."""
    fresh = not any(returned.alias_info is not None for returned in func._schema.returns)
    rows = (*eager.rows_of(func, Layout | ResultType), *eager.rows_of(func, eager.ParameterTypes)) if fresh else ()
    parts = [_of_rows(rows)] if rows else []
    if not func._schema.is_mutable and torch.Tag.pointwise in func.tags:
        orders = eager.rows_of(func, eager.Orders)
        parts.append(_of_rows(orders) if orders else _order_of(func._overloadname))
    return functools.reduce(_both, parts) if parts else None


def _of_rows(rows: Sequence[eager.Row]) -> Correction:
    """Return what makes the corrections of rows, in their order: those of the first operand's device."""
    corrections = [(row.device, _of_rule(row.rule)) for row in rows]
    if len(rows) == 1 and rows[0].device is eager.Device.ANY:
        return corrections[0][1]

    def correct(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        kind = device_of(args[0])
        for device, correction in corrections:
            if device.has(kind):
                result = correction(mode, result, args, kwargs)
        return result

    return correct


def _of_rule(rule: eager.Rule) -> Correction:
    match rule:
        case eager.ParameterTypes():
            return functools.partial(_statistics, rule)
        case eager.Orders():
            return CORRECTIONS[rule.layout]
    return CORRECTIONS[rule]
