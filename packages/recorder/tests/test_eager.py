"""What fake tensors are held to: eager's refusals, strides and element types, each row of the tables against eager."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor

from intarsia_ir.eager import Layout, OperandShapes, OperandTypes, ResultType
from intarsia_recorder import EagerMode, record, refused_types
from intarsia_recorder.corrections import CORRECTIONS
from intarsia_recorder.operand_shapes import PROBLEMS
from intarsia_recorder.operand_types import MISMATCHES

aten = torch.ops.aten
Make = Callable[[torch.dtype], torch.Tensor]


def _ones(*shape: int) -> Make:
    return lambda dtype: torch.ones(shape, dtype=dtype)


_X, _SQUARE, _ROW, _IMAGE, _VOLUME = _ones(4, 4), _ones(4, 4), _ones(4), _ones(1, 2, 4, 4), _ones(1, 2, 4, 4, 4)
_BATCH = _ones(1, 4, 4)


def _zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int64)


#: Arguments of the ops that take more than one tensor; functions become tensors of the type under test.
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "_adaptive_avg_pool3d": (_VOLUME, [2, 2, 2]),
    "_cdist_forward": (_X, _X, 2.0, None),
    "complex": (_X, _X),
    "multi_margin_loss": (_X, _zeros(4)),
    "mse_loss": (_X, _X),
    "multilabel_margin_loss_forward": (_X, _zeros(4, 4), 1),
    "normal.Tensor_Tensor": (_X, _X),
    "normal.Tensor_float": (_X, 1.0),
    "normal.float_Tensor": (1.0, _X),
    "polar": (_X, _X),
    "soft_margin_loss": (_X, _X),
    "_log_softmax": (_X, 0, False),
    "_log_softmax_backward_data": (_X, _X, 0, torch.float32),
    "_prelu_kernel": (_X, _X),
    "_safe_softmax": (_X, 0),
    "_softmax": (_X, 0, False),
    "_softmax_backward_data": (_X, _X, 0, torch.float32),
    "_upsample_nearest_exact1d": (_BATCH, [8]),
    "_upsample_nearest_exact2d": (_IMAGE, [8, 8]),
    "_upsample_nearest_exact3d": (_VOLUME, [8, 8, 8]),
    "adaptive_max_pool2d": (_IMAGE, [2, 2]),
    "adaptive_max_pool3d": (_VOLUME, [2, 2, 2]),
    "addbmm": (_X, _BATCH, _BATCH),
    "addmm": (_X, _X, _X),
    "addmv": (_ROW, _X, _ROW),
    "avg_pool2d": (_IMAGE, [2, 2]),
    "avg_pool3d": (_VOLUME, [2, 2, 2]),
    "baddbmm": (_BATCH, _BATCH, _BATCH),
    "bmm": (_BATCH, _BATCH),
    "bucketize.Tensor": (_X, _ROW),
    "clamp": (_X, _X),
    "clamp.default": (_X, True),
    "clamp_max.default": (_X, True),
    "clamp_min.default": (_X, True),
    "div.Scalar_mode": (_X, True),
    "div.Tensor_mode": (_X, _X),
    "binary_cross_entropy": (_X, _X),
    "binary_cross_entropy_with_logits": (_X, _X),
    "dist": (_X, _X),
    "dot": (_ROW, _ROW),
    "glu": (_X,),
    "grid_sampler_2d": (_IMAGE, _ones(1, 2, 2, 2), 0, 0, True),
    "grid_sampler_3d": (_VOLUME, _ones(1, 2, 2, 2, 3), 0, 0, True),
    "im2col": (_IMAGE, [2, 2], [1, 1], [0, 0], [1, 1]),
    "kthvalue": (_X, 1),
    "linalg_cross": (_ones(4, 3), _ones(4, 3)),
    "logcumsumexp": (_X, 0),
    "max_pool2d_with_indices": (_IMAGE, [2, 2]),
    "max_pool2d_with_indices_backward": (
        *(_ones(1, 2, 2, 2), _IMAGE, [2, 2], [2, 2], [0, 0], [1, 1], False),
        _zeros(1, 2, 2, 2),
    ),
    "max_pool3d_with_indices": (_VOLUME, [2, 2, 2]),
    "max_unpool2d": (_IMAGE, _zeros(1, 2, 4, 4), [8, 8]),
    "max_unpool3d": (_VOLUME, _zeros(1, 2, 4, 4, 4), [8, 8, 8], [2, 2, 2], [0, 0, 0]),
    "mm": (_X, _X),
    "mv": (_X, _ROW),
    "nll_loss2d_forward": (_IMAGE, _zeros(1, 4, 4), None, 1, -100),
    "nll_loss_forward": (_X, _zeros(4), None, 1, -100),
    "reflection_pad1d": (_BATCH, [1, 1]),
    "reflection_pad2d": (_IMAGE, [1, 1, 1, 1]),
    "reflection_pad3d": (_VOLUME, [1] * 6),
    "replication_pad1d": (_BATCH, [1, 1]),
    "replication_pad2d": (_IMAGE, [1, 1, 1, 1]),
    "replication_pad3d": (_VOLUME, [1] * 6),
    "threshold": (_X, 0, 1),
    "topk": (_X, 1),
    "upsample_bicubic2d": (_IMAGE, [8, 8], False),
    "upsample_bilinear2d": (_IMAGE, [8, 8], False),
    "upsample_linear1d": (_BATCH, [8], False),
    "upsample_nearest1d": (_BATCH, [8]),
    "upsample_nearest2d": (_IMAGE, [8, 8]),
    "upsample_nearest3d": (_VOLUME, [8, 8, 8]),
    "upsample_trilinear3d": (_VOLUME, [8, 8, 8], False),
    "vdot": (_ROW, _ROW),
    "round.decimals": (_X,),
}
_NAMED: dict[str, dict[str, Any]] = {
    "div.Scalar_mode": {"rounding_mode": "trunc"},
    "div.Tensor_mode": {"rounding_mode": "trunc"},
    "round.decimals": {"decimals": 1},
}
_TYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.complex64),
)


def _overload(name: str) -> OpOverload:
    base, _, overload = name.partition(".")
    packet = getattr(aten, base)
    if not overload:
        overload = "Tensor" if "Tensor" in packet.overloads() else "default"
    found: OpOverload = getattr(packet, overload)
    return found


def _call(name: str, dtype: torch.dtype, mode: EagerMode | None = None) -> Exception | None:
    """Call an op of the table on tensors of a type; return what it raised."""
    op = _overload(name)
    tensors = sum(str(a.type) == "Tensor" for a in op._schema.arguments)
    chosen = _ARGUMENTS.get(name, (_X,) * tensors)
    args = [a(dtype) if callable(a) else a for a in chosen]
    if mode is not None:
        args = [mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args]
    try:
        op(*args, **_NAMED.get(name, {}))
    except (NotImplementedError, RuntimeError) as error:
        return error
    except TypeError as error:
        if "complex" not in str(error):  # since torch 2.15 of these; any other is of a call that isn't as it is meant
            raise
        return error
    return None


@pytest.mark.parametrize("name", sorted(refused_types()))
def test_what_eager_refuses_is_refused_and_nothing_else(name: str) -> None:
    refused, mode = refused_types()[name], EagerMode()
    for dtype in _TYPES:
        ours, eager = _call(name, dtype, mode), _call(name, dtype)
        assert (ours is None) == (eager is None), (name, dtype, ours, eager)
        if dtype in refused:
            assert eager is not None
            assert "argument" not in str(eager)  # it was called as it is meant to be


def _layouts() -> list[torch.Tensor]:
    """Tensors that broadcast against each other, in several orders of their dimensions."""
    whole = torch.arange(1.0, 25).reshape(2, 3, 4)
    orders = [whole.permute(p).contiguous().permute(torch.tensor(p).argsort().tolist()) for p in _ORDERS]
    return [*orders, whole[0].t().contiguous().t(), whole[:, :1], torch.tensor(2.0), torch.ones(1, 6, 4)[:, ::2]]


_ORDERS = [(0, 1, 2), (0, 2, 1), (1, 2, 0), (2, 1, 0)]
_ELEMENTWISE: list[Callable[[torch.Tensor, torch.Tensor], Any]] = [
    torch.copysign,
    lambda x, y: torch.addcmul(x, y > 1, x, value=2),
    lambda x, y: torch.copysign(x, y.int()),
    lambda x, y: torch.div(x, y, rounding_mode="floor"),
    torch.floor_divide,
    torch.heaviside,
    torch.ldexp,
    torch.logaddexp,
    torch.logaddexp2,
    torch.logical_and,
    lambda x, y: torch.logical_or(x, y.int()),
    lambda x, y: torch.logical_xor(x > 1, y),
    lambda x, y: 2**x,
    lambda x, y: torch.xlogy(x, y.int()),
    torch.fmax,
    torch.hypot,
    lambda x, y: torch.pow(x, y.int()),
    lambda x, y: torch.where(x > 2, x, y),
    lambda x, y: torch.isin(x, torch.arange(3.0)),
    lambda x, y: torch.isin(x, 2),
    lambda x, y: torch.ops.aten.log_sigmoid_forward(x),
    lambda x, y: torch.pow(x > 1, True),
    lambda x, y: torch.pow(x > 1, 1),
    lambda x, y: torch.ops.aten.native_dropout_backward(x, x > 1, 2.0),
]


@pytest.mark.parametrize("number", range(len(_ELEMENTWISE)))
def test_strides_and_types_are_eagers(number: int) -> None:
    function = _ELEMENTWISE[number]
    mode = EagerMode()
    for x, y in itertools.product(_layouts(), repeat=2):
        with mode:
            predicted = function(mode.from_tensor(x), mode.from_tensor(y))
        for ours, eager in zip(_flat(predicted), _flat(function(x, y)), strict=True):
            assert (ours.dtype, ours.shape) == (eager.dtype, eager.shape)
            assert _moving(ours) == _moving(eager), (x.shape, x.stride(), y.shape, y.stride())


_SINGLE = [
    *[((5, 1), (1, 5)), ((5, 1), (1, 1)), ((1, 4), (1, 1)), ((2, 1, 3), (3, 7, 1)), ((2, 1, 3), (1, 9, 2))],
    *[((1, 1, 4), (2, 3, 1)), ((2, 3, 1, 1), (3, 1, 3, 3)), ((2, 1, 3, 4), (12, 1, 4, 1)), ((4, 1), (2, 1))],
]
_ON_SINGLE: list[Callable[[torch.Tensor], Any]] = [
    *[lambda x: x * 2, lambda x: 2 - x, lambda x: x / 3, lambda x: x + x, lambda x: x > 0, lambda x: x**2, torch.neg],
    *[
        torch.relu,
        torch.sin,
        torch.square,
        lambda x: x.clamp(0, 1),
        lambda x: x.clamp(min=x),
        torch.rad2deg,
        torch.clone,
    ],
    *[
        lambda x: x * torch.ones(()),
        lambda x: x + x.contiguous(),
        lambda x: torch.where(x > 0, x, 1.0),
        torch.nan_to_num,
    ],
    *[
        lambda x: x.flip(0),
        lambda x: x.sort(-1).indices,
        torch.zeros_like,
        torch.rand_like,
        lambda x: torch.copysign(x, 2),
        lambda x: torch.ldexp(x, x),
    ],
    *[lambda x: torch.addcmul(x, x, x), lambda x: torch.lerp(x, x, 0.5), lambda x: x.remainder(2), lambda x: 2**x],
    *[lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]), torch.nn.functional.relu6, lambda x: x.int() & 1],
    *[lambda x: x.masked_fill(x > 0, 2), lambda x: x.to(torch.float64), lambda x: torch.heaviside(x, x.flatten()[0])],
]


@pytest.mark.parametrize("number", range(len(_ON_SINGLE)))
def test_dimensions_of_one_element_get_the_strides_that_eager_gives_them(number: int) -> None:
    function = _ON_SINGLE[number]
    for shape, strides in _SINGLE:
        x = torch.empty_strided(shape, strides).fill_(1.0)
        with EagerMode() as mode:
            ours = function(mode.from_tensor(x))
        assert ours.stride() == function(x).stride(), (shape, strides)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 0, 2, 3), (0, 2, 3, 1)])
def test_a_batch_norm_suits_the_memory_format(order: tuple[int, ...]) -> None:
    x = torch.randn(2, 3, 4, 5).permute(order).contiguous().permute(torch.tensor(order).argsort().tolist())
    mode = EagerMode()
    with mode:
        ours = torch.nn.functional.batch_norm(mode.from_tensor(x), None, None, training=True)
    assert ours.stride() == torch.nn.functional.batch_norm(x, None, None, training=True).stride()


def test_new_running_statistics_have_the_types_of_the_old_ones() -> None:
    x, running = torch.ones(2, 1, dtype=torch.bfloat16), torch.ones(1, dtype=torch.bfloat16)
    with EagerMode() as mode:
        faked = [mode.from_tensor(t) for t in (x, running, running, running, running)]
        ours = aten._batch_norm_with_update_functional(*faked, 0.5, 1e-5)
    eager = aten._batch_norm_with_update_functional(x, running, running, running, running, 0.5, 1e-5)
    assert [t.dtype for t in ours] == [t.dtype for t in eager]


_SCATTERS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: torch.select_scatter(x, x.select(0, 1), 0, 0),
    lambda x: torch.select_scatter(x, x.select(1, 1), 1, 2),
    lambda x: torch.slice_scatter(x, x.narrow(0, 0, 2), 0, 1, 3),
    lambda x: torch.slice_scatter(x, x, 0, 0, 3),
    lambda x: torch.diagonal_scatter(x, x.select(1, 0), 0, 1, 2),
]


def test_kernels_of_other_devices_keep_the_order_of_dimensions() -> None:
    with EagerMode() as mode:
        shell = torch.empty_strided((33, 2, 33, 3), (3, 99, 198, 1), device="meta")
        image = FakeTensor(mode, shell, torch.device("cuda:0"))
        normal, *_ = aten._native_batch_norm_legit.no_stats(image, None, None, True, 0.1, 1e-5)
        shell = torch.empty_strided((16, 31), (2, 32), device="meta")
        rows, _ = aten.log_sigmoid_forward(FakeTensor(mode, shell, torch.device("cuda:0")))
    assert normal.stride() == (3, 99, 198, 1) and rows.stride() == (1, 16)


def _on_a_gpu(function: Callable[..., torch.Tensor], *operands: torch.Tensor) -> tuple[int, ...]:
    """Return the strides of what a function gives there."""
    with EagerMode() as mode:
        shells = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta") for x in operands]
        return function(*[FakeTensor(mode, shell, torch.device("cuda:0")) for shell in shells]).stride()


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("rank", [4, 5])
def test_padding_is_row_major_on_a_gpu(rank: int, mode: str) -> None:
    x = torch.randn(2, 3, *[5] * (rank - 2)).movedim(1, -1).contiguous().movedim(-1, 1)
    pad = (1,) * 2 * (rank - 2)
    assert (
        _on_a_gpu(lambda x: torch.nn.functional.pad(x, pad, mode), x) == x.new_empty(2, 3, *[7] * (rank - 2)).stride()
    )
    names = {"reflect": "reflection", "replicate": "replication"}
    backward = getattr(aten, f"{names[mode]}_pad{rank - 2}d_backward")
    grad = x.new_empty(2, 3, *[7] * (rank - 2))
    assert _on_a_gpu(lambda x, grad: backward(grad, x, pad), x, grad) == x.contiguous().stride()


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear"])
@pytest.mark.parametrize("channels", [3, 8])
def test_resampling_keeps_the_memory_format_on_a_gpu(channels: int, mode: str) -> None:
    x = torch.randn(2, channels, 3, 4).to(memory_format=torch.channels_last)
    strides = _on_a_gpu(lambda x: torch.nn.functional.interpolate(x, (5, 6), mode=mode), x)
    assert (
        strides
        == torch.nn.functional.interpolate(x, (5, 6), mode=mode).stride()
        == (30 * channels, 1, 6 * channels, channels)
    )


def test_a_dropouts_gradient_suits_the_memory_format_on_a_gpu() -> None:
    x = torch.randn(2, 3, 4, 5)
    for grad, expected in [
        (x.permute(3, 2, 1, 0), (24, 6, 2, 1)),
        (x.to(memory_format=torch.channels_last), (60, 1, 15, 3)),
        (x[:, :1].transpose(2, 3), (20, 20, 4, 1)),
    ]:
        assert _on_a_gpu(lambda g, kept: aten.native_dropout_backward(g, kept, 2.0), grad, grad > 0) == expected


@pytest.mark.parametrize("function", _SCATTERS)
def test_what_is_written_into_part_of_a_repeated_tensor_is_a_clone(function: Callable[..., torch.Tensor]) -> None:
    for x in (
        torch.randn(1, 4, 4).expand(3, 4, 4),
        torch.randn(3, 1, 4).expand(3, 4, 4),
        torch.randn(3, 4, 5)[..., :4],
    ):
        with EagerMode() as mode:
            ours = function(mode.from_tensor(x))
        assert ours.stride() == function(x).stride() == _on_a_gpu(function, x), x.stride()


def _flat(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _moving(x: torch.Tensor) -> list[int]:
    """Return the strides of dimensions along which there is more than one element."""
    return [s for s, n in zip(x.stride(), x.shape, strict=True) if n > 1]


def test_parts_of_an_op_give_the_strides_that_it_gives() -> None:
    def parts(x: torch.Tensor) -> torch.Tensor:
        return x.contiguous() * 2

    recorded = record(aten.mish, (_layouts()[3],), decompositions={aten.mish.default: parts})
    (spec,) = recorded.signature.outputs
    assert spec.strides == _layouts()[3].stride() != (12, 4, 1)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, d: torch.softmax(x, d),
        lambda x, d: torch.sort(x, d),
        lambda x, d: torch.sort(x, stable=True, dim=d),
        lambda x, d: x.select(d, 0),
        lambda x, d: torch.select_scatter(x, x[0], d, 0),
        lambda x, d: torch.slice_scatter(x, x, d),
        lambda x, d: torch.diagonal_scatter(x, x[0], 0, 0, d),
    ],
)
def test_dimensions_are_checked(function: Callable[[torch.Tensor, int], Any]) -> None:
    x, mode = torch.ones(3, 3), EagerMode()
    for dim in (-3, 2, 5):
        with pytest.raises(IndexError) as eager:
            function(x, dim)
        with mode, pytest.raises(IndexError) as ours:
            function(mode.from_tensor(x), dim)
        assert str(ours.value) == str(eager.value)
    for dim in (-1, 1):
        with mode:
            function(mode.from_tensor(x), dim)


@pytest.mark.parametrize(
    "name", ["add_", "mul_", "sub_", "div_", "multiply_", "remainder_", "fmod_", "atan2_", "copysign_"]
)
@pytest.mark.parametrize(
    "other", [0.5, 2, 1j, torch.tensor(0.5), torch.tensor([1j, 2j]), torch.tensor([2, 3])], ids=str
)
@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.float32, torch.complex64])
def test_no_result_is_stored_that_its_place_cannot_hold(name: str, other: Any, dtype: torch.dtype) -> None:
    def refuses(x: torch.Tensor, y: Any) -> bool:
        try:
            getattr(x, name)(y)
        except (RuntimeError, TypeError):
            return True
        return False

    with EagerMode() as mode:
        x = mode.from_tensor(torch.ones(2, dtype=dtype))
        y = mode.from_tensor(other) if isinstance(other, torch.Tensor) else other
        refused = refuses(x, y)
    assert refused == refuses(torch.ones(2, dtype=dtype), other)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.masked_fill_(x > 0, 2.0),
        lambda x: x.masked_fill_((x > 0).byte(), 2.0),
        lambda x: x.masked_scatter_(x.bool().byte(), x),
        lambda x: x.put_(x.long() * 0, x.clone()),
        lambda x: x.put_(x.int() * 0, x),
        lambda x: x.put_(x.long() * 0, x.double()),
        lambda x: x.heaviside_(x.double()),
        lambda x: torch.heaviside(x, x),
        lambda x: torch.ldexp(x, x > 0),
        lambda x: x.addcdiv_(x > 0, x > 0),
        lambda x: torch.addcdiv(x, x.int(), x.float()),
        lambda x: torch.addcmul(x > 0, x, x),
        lambda x: x.int().bernoulli_(0.5),
        lambda x: x.uniform_(),
        lambda x: torch.clamp(x, x > 0),
        lambda x: (x > 0).clamp_(True),
        lambda x: (x > 0).clamp_(2),
        lambda x: x < 2j,
        lambda x: x.lt_(x.to(torch.complex64)),
    ],
)
@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.float32, torch.complex64])
def test_types_that_do_not_go_together_are_refused_where_eager_does(function: Any, dtype: torch.dtype) -> None:
    def refuses(x: torch.Tensor) -> bool:
        try:
            function(x)
        except (RuntimeError, TypeError):
            return True
        return False

    with EagerMode() as mode:
        refused = refuses(mode.from_tensor(torch.ones(2, dtype=dtype)))
    assert refused == refuses(torch.ones(2, dtype=dtype))


def test_no_bool_is_subtracted() -> None:
    x, mode = torch.ones(3, dtype=torch.int32), EagerMode()
    subtractions: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda x: x - True,
        lambda x: True - x,
        lambda x: x - (x > 0),
        lambda x: (x > 0) - 1,
        lambda x: 1 - (x > 0),
        lambda x: x.clone().sub_(True),
    ]
    for function in subtractions:
        with pytest.raises(RuntimeError):
            function(x)
        with mode, pytest.raises(RuntimeError):
            function(mode.from_tensor(x))


@pytest.mark.parametrize("rows", [0, 3])
def test_the_mask_of_a_dropout_of_nothing_is_of_the_operands_type(rows: int) -> None:
    x = torch.ones(rows, 4)
    with EagerMode() as mode:
        _, mask = torch.ops.aten.native_dropout(mode.from_tensor(x), 0.5, True)
    assert mask.dtype is torch.ops.aten.native_dropout(x, 0.5, True)[1].dtype


_IMAGES = [
    torch.randn(2, 6, 3, 4).to(memory_format=torch.channels_last),
    torch.randn(2, 6, 3, 4).to(memory_format=torch.channels_last)[:, ::2],
    torch.randn(2, 6, 3, 4).to(memory_format=torch.channels_last)[..., ::2],
    torch.randn(2, 6, 3, 4).permute(1, 0, 2, 3),
    torch.randn(1, 6, 3, 4).to(memory_format=torch.channels_last)[:, :1],
    torch.randn(4, 3, 6, 2).permute(3, 2, 1, 0),
    torch.randn(2, 6, 1, 1).to(memory_format=torch.channels_last),
    torch.randn(2, 6, 3, 4),
]
_PLANES = [torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), torch.randn(4, 3, 2, 5).transpose(0, 2)]
_ON_PLANES: list[Callable[[torch.Tensor], Any]] = [
    lambda x: torch.nn.functional.pad(x, (1,) * 6, "reflect"),
    lambda x: torch.nn.functional.pad(x, (1,) * 6, "replicate"),
    lambda x: torch.nn.functional.grid_sample(x, x[..., :2].abs(), align_corners=False),
]
_VOLUMES = [
    torch.randn(2, 6, 3, 4, 2).to(memory_format=torch.channels_last_3d),
    torch.randn(6, 2, 3, 4, 2).transpose(0, 1),
]
_ON_IMAGES: list[Callable[[torch.Tensor], Any]] = [
    lambda x: torch.roll(x, 1, 2),
    lambda x: torch.roll(x, (1, 2), (1, -1)),
    lambda x: torch.roll(x, 3),
    lambda x: torch.nn.functional.channel_shuffle(x, x.shape[1]),
    lambda x: torch.nn.functional.rrelu(x, 0.5, 0.5),
    lambda x: torch.nn.functional.huber_loss(x, x.contiguous(), reduction="none"),
    lambda x: torch.complex(x, x).angle(),
]
_ON_FOUR: list[Callable[[torch.Tensor], Any]] = [
    lambda x: aten.reflection_pad2d_backward(torch.ones(*x.shape[:3], x.shape[3]), x, [0] * 4),
    lambda x: aten.replication_pad2d_backward(torch.ones(*x.shape[:3], x.shape[3]), x, [0] * 4),
    lambda x: torch.nn.functional.unfold(x, 1),
    lambda x: torch.nn.functional.max_unpool2d(x, torch.zeros(x.shape, dtype=torch.int64), 1),
]
_ON_FIVE: list[Callable[[torch.Tensor], Any]] = [
    lambda x: aten.reflection_pad3d_backward(x.new_ones(*x.shape[:2], *[n + 2 for n in x.shape[2:]]), x, [1] * 6),
    lambda x: aten.replication_pad3d_backward(x.new_ones(*x.shape[:2], *[n + 2 for n in x.shape[2:]]), x, [1] * 6),
    lambda x: torch.nn.functional.pad(x, (1,) * 6, "reflect"),
    lambda x: torch.nn.functional.pad(x, (1,) * 6, "replicate"),
]


@pytest.mark.parametrize(
    "operands, functions",
    [(_IMAGES, _ON_IMAGES + _ON_FOUR), (_PLANES, _ON_PLANES), (_VOLUMES, _ON_IMAGES + _ON_FIVE)],
)
def test_memory_formats_are_eagers(operands: list[torch.Tensor], functions: list[Callable[..., Any]]) -> None:
    mode = EagerMode()
    for x, (number, function) in itertools.product(operands, enumerate(functions)):
        with mode:
            predicted = function(mode.from_tensor(x))
        assert _moving(predicted) == _moving(function(x)), (number, x.shape, x.stride())


def _turned(x: torch.Tensor) -> list[torch.Tensor]:
    """Return copies of a tensor of three dimensions whose dimensions lie in memory in each order."""
    orders = [list(order) for order in itertools.permutations(range(x.dim()))]
    return [x.permute(order).contiguous().permute([order.index(d) for d in range(x.dim())]) for order in orders]


_INDEXED: list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = [
    lambda x, i: x[i],
    lambda x, i: x[:, i],
    lambda x, i: x[i, i],
    lambda x, i: x[i, :, i],
    lambda x, i: x[i, i, i],
    lambda x, i: x[i, i[0, 0]],
    lambda x, i: x[None, i[:1], i[:, :1]],
]


@pytest.mark.parametrize("number", range(len(_INDEXED)))
def test_what_is_indexed_lies_as_the_indices(number: int) -> None:
    function, mode = _INDEXED[number], EagerMode()
    indices = _turned(torch.randint(0, 2, (2, 3, 4)))
    for x, i in itertools.product(_turned(torch.randn(3, 4, 5)), indices):
        with mode:
            predicted = function(mode.from_tensor(x), mode.from_tensor(i))
        assert _moving(predicted) == _moving(function(x, i)), (x.stride(), i.stride())


_LOSSES: list[Callable[..., torch.Tensor]] = [
    lambda g, x, y: aten.mse_loss_backward(g, x, y, 0),
    lambda g, x, y: aten.smooth_l1_loss_backward(g, x, y, 0, 1.0),
    lambda g, x, y: aten.huber_loss_backward(g, x, y, 0, 1.0),
    lambda g, x, y: aten.binary_cross_entropy_backward(g, x, y, None, 0),
    lambda g, x, y: aten.soft_margin_loss_backward(g, x, y, 0),
]


@pytest.mark.parametrize("number", range(len(_LOSSES)))
def test_gradients_of_losses_lie_as_eagers(number: int) -> None:
    function, mode = _LOSSES[number], EagerMode()
    whole = torch.rand(5, 4, 3)
    operands = [*_turned(whole), whole[:1].expand(5, 4, 3), torch.rand(5, 4, 6)[..., ::2]]
    for three in itertools.product(operands[::2], operands, operands):
        with mode:
            predicted = function(*map(mode.from_tensor, three))
        assert _moving(predicted) == _moving(function(*three)), [x.stride() for x in three]


_TRANSFORMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "fft": lambda x: torch.fft.fft(x, n=10, dim=1),
    "fft of complex": lambda x: torch.fft.fft(x + 0j, dim=0),
    "fftn": lambda x: torch.fft.fftn(x + 0j, dim=(1, 2)),
    "ihfft": lambda x: torch.fft.ihfft(x, dim=1),
    "irfftn": lambda x: torch.fft.irfftn(x + 0j, dim=(1, 0)),
    "rfft": lambda x: torch.fft.rfft(x, dim=0),
    "rfftn": lambda x: torch.fft.rfftn(x, dim=(0, 2, 1)),
    "stft": lambda x: torch.stft(x[:, :, 0], 4, 2, center=False, window=torch.ones(4), return_complex=True),
}


@pytest.mark.parametrize("name", _TRANSFORMS)
def test_transforms_lie_as_eagers(name: str) -> None:
    """The dimensions that a transform goes along lie innermost."""
    for x in [*_turned(torch.rand(6, 8, 4)), torch.rand(6, 8, 8)[..., ::2], torch.rand(1, 8, 4).expand(6, 8, 4)]:
        with EagerMode() as mode:
            predicted = _TRANSFORMS[name](mode.from_tensor(x))
        assert _moving(predicted) == _moving(_TRANSFORMS[name](x)), x.stride()


def test_operators_that_take_functions_go_by_torchs_rules_for_fake_tensors():
    """torch finds these rules by the class of the mode, which is one of ours."""
    from torch._higher_order_ops.triton_kernel_wrap import triton_kernel_wrapper_mutation

    with EagerMode(static_shapes=True) as mode:
        x = torch.ones(3)
        given = {"kernel_idx": 0, "constant_args_idx": 0, "grid": [(1,)], "tma_descriptor_metadata": {}}
        assert triton_kernel_wrapper_mutation(**given, kwargs={"x": x}) is None
        assert x.fake_mode is mode


def test_every_rule_of_the_table_has_a_check_or_a_correction() -> None:
    assert set(MISMATCHES) == set(OperandTypes)
    assert set(PROBLEMS) == set(OperandShapes)
    assert set(CORRECTIONS) == {*Layout, *ResultType}
