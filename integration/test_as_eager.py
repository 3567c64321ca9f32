"""Element types, strides, special values and rounding points: what random programs found to differ from eager."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import intarsia

NAN, INF = float("nan"), float("inf")


def _compiled(function: Callable[..., Any], *args: Any) -> Any:
    """Run a function compiled; it must compile and not fall back."""
    intarsia.reset()
    result = intarsia.compile(function, options={"on_error": "raise"})(*args)
    stats = intarsia.stats()
    assert stats.frames_compiled >= 1
    assert stats.fallbacks == 0
    return result


def _same(function: Callable[..., Any], *args: Any) -> None:
    """Compare with eager: type, shape, strides that matter, and every bit but NaNs' payloads."""
    eager, ours = function(*args), _compiled(function, *args)
    assert (ours.dtype, ours.shape) == (eager.dtype, eager.shape)
    moving = [d for d in range(eager.dim()) if eager.shape[d] > 1]
    assert [ours.stride(d) for d in moving] == [eager.stride(d) for d in moving]
    torch.testing.assert_close(ours, eager, rtol=0, atol=0, equal_nan=True)
    if eager.is_floating_point():
        assert torch.equal(ours.signbit() | ours.isnan(), eager.signbit() | eager.isnan())


REFUSED = {
    "bitwise_not of halves": lambda x: torch.bitwise_not(x.half()),
    "bitwise_and in place": lambda x: x.half().bitwise_and_(x.half()),
    "bitwise_or of an int and a float": lambda x: x.int() | 1.5,
    "hardswish of ints": lambda x: F.hardswish(x.int()),
    "a shift of halves": lambda x: x.bfloat16() << 1,
    "round of bools": lambda x: torch.round(x > 0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_refuses_raises_its_error(name: str) -> None:
    function, x = REFUSED[name], torch.randn(3, 5)
    with pytest.raises(NotImplementedError) as eager:
        function(x)
    intarsia.reset()
    with pytest.raises(NotImplementedError) as ours:
        intarsia.compile(function, options={"on_error": "raise"})(x)
    assert str(ours.value) == str(eager.value)


LAID_OUT = {
    "one_hot": lambda x: F.one_hot((x > 0).long(), 3),
    "a number to a power": lambda x: 2 ** x.round(),
    "logical_and of two types": lambda x: torch.logical_and(x, x[:1].int()),
    "ldexp": lambda x: torch.ldexp(x, x.int()),
    "copysign of two types": lambda x: torch.copysign(x, x[0].int()),
    "hardshrink": lambda x: F.hardshrink(x),
    "heaviside": lambda x: torch.heaviside(x, x[0]),
    "a power of bools": lambda x: torch.eq(torch.pow(x > 0, True), -0.0),
}


@pytest.mark.parametrize("name", LAID_OUT)
def test_strides_are_eagers(name: str) -> None:
    x = torch.randn(3, 4, 5)
    for order in ((2, 0, 1), (1, 0, 2), (2, 1, 0)):
        _same(LAID_OUT[name], x.permute(order))


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [-2, (-2,), (1, -1), -1])
def test_a_norm_over_dimensions_of_one_element_drops_them(dim: int | tuple[int, ...], keepdim: bool) -> None:
    x = torch.randn(8, 1, 1)

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.vector_norm(x, 3, dim=dim, keepdim=keepdim) * 2

    torch.testing.assert_close(_compiled(f, x), f(x), check_stride=True)


@pytest.mark.parametrize("exponent", [140, -160, 2**40, -(2**63)])
def test_ldexp_moves_the_exponent_although_the_power_of_2_is_no_float(exponent: int) -> None:
    x = torch.tensor([1e-30, -3e30, 0.0, 1.5])
    for n in (torch.tensor(exponent), torch.tensor([exponent] * 4)):
        torch.testing.assert_close(_compiled(lambda x, n: torch.ldexp(x, n) + 0, x, n), torch.ldexp(x, n))


def test_a_batch_norm_of_a_permuted_tensor_is_row_major() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x, None, None, training=True)

    x = torch.randn(3, 4, 5).permute(2, 0, 1)
    torch.testing.assert_close(_compiled(f, x), f(x), check_stride=True)


def _values(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two tensors of ordinary and special values."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(512, generator=generator) * 3 for _ in range(2))
    x[:12] = torch.tensor([0.0, -0.0, 1, -1, INF, -INF, NAN, 1e-4, 6e4, -2.5, 0.5, 2])
    return x.to(dtype), y.to(dtype)


#: What eager's CPU kernels compute in the half type itself, or round at points of their own.
ROUNDED = {
    "cross": lambda x, y: torch.cross(x.view(-1, 2)[:6].view(4, 3), y.view(-1, 2)[:6].view(4, 3), dim=1),
    "entr": lambda x, y: torch.special.entr(x),
    "floor_divide": torch.floor_divide,
    "huber_loss": lambda x, y: F.huber_loss(x, y, reduction="none", delta=0.7),
    "kl_div": lambda x, y: F.kl_div(x, y, reduction="none"),
    "logit": lambda x, y: torch.logit(x),
    "logit with bounds": lambda x, y: torch.logit(x, 0.1),
    "logsumexp": lambda x, y: y.view(-1, 8).logsumexp(-1),
    "mse_loss": lambda x, y: F.mse_loss(x, y, reduction="none"),
    "pow -0.5": lambda x, y: x**-0.5,
    "pow -2": lambda x, y: x**-2,
    "pow 0.5": lambda x, y: x**0.5,
    "pow 3": lambda x, y: x**3,
    "smooth_l1_loss": lambda x, y: F.smooth_l1_loss(x, y, reduction="none", beta=0.7),
    "soft_margin_loss": lambda x, y: F.soft_margin_loss(x, y, reduction="none"),
    "softshrink": lambda x, y: F.softshrink(x, 0.3),
    "threshold": lambda x, y: F.threshold(x, 0.3, -1.0),
    "xlog1py": lambda x, y: torch.special.xlog1py(x, y),
    "xlog1py of a number": lambda x, y: torch.special.xlog1py(2.5, y),
    "xlogy": lambda x, y: torch.xlogy(x, y),
    "xlogy of a number": lambda x, y: torch.xlogy(2.5, y),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ROUNDED)
def test_half_types_round_where_eager_does(name: str, dtype: torch.dtype) -> None:
    _same(ROUNDED[name], *_values(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_of_infinity(approximate: str, dtype: torch.dtype) -> None:
    for shape in ((1,), (7,), (3, 4)):
        for x in (torch.full(shape, INF, dtype=dtype), torch.full(shape, -INF, dtype=dtype)):
            _same(lambda x: F.gelu(x, approximate=approximate), x)
            _same(lambda x: F.gelu(x, approximate=approximate), x.expand(2, *shape)[..., :1])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8])
def test_constants_become_integers_as_values_do(dtype: torch.dtype) -> None:
    for number in (NAN, INF, -INF, 3e9, -1e20, 300.0, -1.0):
        _same(lambda x: torch.full_like(x, number).to(dtype), torch.randn(5, 7))
    _same(lambda x: torch.clamp_min(x, NAN).to(dtype), torch.randn(40))


@pytest.mark.parametrize("at", [0, 2, 4])
def test_the_mean_beside_a_variance_is_updated_by_each_element(at: int) -> None:
    x = torch.arange(5.0).repeat(3, 1)
    x[1, at] = -INF
    x[0, 3:] = INF
    for dim in (1, 0, (0, 1)):
        _same(lambda x: torch.var_mean(x, dim=dim)[1], x)
        _same(lambda x: torch.std_mean(x, dim=dim)[1], x.t())


def test_data_chooses_among_one() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.heaviside(torch.remainder(x, 3), x)
        return F.interpolate(y[None, None].float(), scale_factor=1.5, mode="nearest")

    _same(f, torch.ones(1, 1, dtype=torch.float16))


def test_a_constant_remainder_that_might_raise_is_folded_once() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return F.embedding((0 ** torch.full_like(x, 1)).long() % 3, torch.arange(6.0).view(3, 2))

    _same(f, torch.tensor(3, dtype=torch.uint8))


def test_what_eager_refuses_may_be_empty() -> None:
    _same(lambda x: F.softmin(x, -2).log_softmax(-1), torch.ones(1, 0, 0, dtype=torch.int32))


REFUSED_BY_TYPE: dict[str, Callable[[Any], Any]] = {
    "times None": lambda x: x * None,
    "plus text": lambda x: x + "a",
    "less than None": lambda x: x < None,
    "times an object": lambda x: x * object(),
    "or a set": lambda x: x | {1},
    "called": lambda x: x(),
    "None called": lambda x: None(x),  # type: ignore[misc]
    "a list as a key": lambda x: {[1]: x},
    "length of a function": lambda x: x + len(len),  # type: ignore[arg-type]
    "next of a number": lambda x: x + next(5),  # type: ignore[call-overload]
    "a step of zero": lambda x: [x][::0],
    "truth of several": lambda x: 1 if x else 2,
    "item of several": lambda x: x.item(),
}


@pytest.mark.parametrize("name", REFUSED_BY_TYPE)
def test_what_python_refuses_raises_its_error(name: str) -> None:
    function, x = REFUSED_BY_TYPE[name], torch.randn(3)

    def caught(x: Any) -> Any:
        try:
            return function(x)
        except (TypeError, ValueError, RuntimeError):
            return x + 1

    with pytest.raises(Exception) as eager:
        function(x)
    intarsia.reset()
    with pytest.raises(type(eager.value)) as ours:
        intarsia.compile(function, options={"on_error": "raise"})(x)
    assert str(ours.value) == str(eager.value)
    assert torch.equal(intarsia.compile(caught, options={"on_error": "raise"})(x), x + 1)
    assert intarsia.stats().fallbacks == 0


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("dropout", [torch.nn.functional.dropout, torch.dropout])
def test_a_dropout_of_nothing_is_its_operand(dropout, dynamic, fresh):
    def function(x):
        y = dropout(x, 0.5, False)
        y.add_(1)
        return y is x, x * 2

    x = torch.zeros(3, 4)
    same, twice = intarsia.compile(function, dynamic=dynamic, options={"on_error": "raise"})(x)
    assert same and x.tolist() == torch.ones(3, 4).tolist() and torch.equal(twice, x * 2)
    assert intarsia.stats().fallbacks == 0


_IN_OTHER_TYPES: dict[str, Callable[..., torch.Tensor]] = {
    "sum": lambda x, **named: torch.sum(x, 1, **named),
    "sum of all": torch.sum,
    "prod": lambda x, **named: torch.prod(x, 1, **named),
    "cumsum": lambda x, **named: torch.cumsum(x, 1, **named),
    "cumprod": lambda x, **named: torch.cumprod(x, 1, **named),
    "nansum": lambda x, **named: torch.nansum(x, 1, **named),
}


@pytest.mark.parametrize("name", _IN_OTHER_TYPES)
@pytest.mark.parametrize("wide", [torch.float64, torch.float32, torch.int32])
def test_elements_are_rounded_to_the_half_type_before_they_are_added(name: str, wide: torch.dtype) -> None:
    function = _IN_OTHER_TYPES[name]
    x = (torch.randn(40, 30, generator=torch.Generator().manual_seed(0)) * (1 if wide.is_floating_point else 30)).to(
        wide
    )
    at_once = _compiled(lambda x: function(x, dtype=torch.bfloat16), x)
    in_two = _compiled(lambda x: function(x.to(torch.bfloat16)), x)
    assert torch.equal(at_once, in_two)
    assert torch.equal(function(x, dtype=torch.bfloat16), function(x.to(torch.bfloat16)))  # as in eager


_OF_TWO_TYPES: dict[str, tuple[Callable[..., Any], torch.dtype, torch.dtype]] = {
    "addmm": (lambda x, y: torch.addmm(x, x, y), torch.float64, torch.bfloat16),
    "layer norm": (lambda x, y: F.layer_norm(x, (3,), y[0], y[1]), torch.float64, torch.float32),
    "linear": (F.linear, torch.bfloat16, torch.float32),
    "pooled rows": (lambda x, y: F.max_pool1d(x, 2), torch.int64, torch.float32),
}


@pytest.mark.parametrize("name", _OF_TWO_TYPES)
def test_what_eager_refuses_is_raised_where_nobody_reads_it(name: str) -> None:
    function, first, second = _OF_TWO_TYPES[name]
    x, y = torch.ones(3, 3, dtype=first), torch.ones(3, 3, dtype=second)

    def unread(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        function(x, y)
        return x + 1

    with pytest.raises((RuntimeError, NotImplementedError)) as eager:
        unread(x, y)
    with pytest.raises(type(eager.value), match=re.escape(str(eager.value))), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it falls back: eager is to raise its own error
        intarsia.compile(unread)(x, y)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("loss", [F.huber_loss, F.soft_margin_loss, F.smooth_l1_loss])
@pytest.mark.parametrize("first", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("second", [torch.float32, torch.float16, torch.float64])
def test_a_loss_of_two_types_has_the_type_that_eager_gives_it(loss: Any, first: torch.dtype, second: Any) -> None:
    x, y = torch.linspace(-1, 1, 12).view(3, 4).to(first), torch.linspace(1, -2, 12).view(3, 4).to(second)
    eager, ours = loss(x, y), _compiled(loss, x, y)
    assert ours.dtype is eager.dtype
    torch.testing.assert_close(ours, eager)


def _times(n: float) -> float:
    return n * 1e5


TOO_LARGE: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "fill_ of a computed float": (lambda x, n: x.half().fill_(_times(n)), (0.1, 0.2, 0.3, 1.5, INF)),
    "alpha of a computed float": (lambda x, n: torch.add(x.half(), x.half(), alpha=_times(n)), (0.1, 0.2, 0.3, 1.5)),
    "alpha of a float": (lambda x, n: torch.sub(x.half(), x.half(), alpha=n), (1.0, 2.0, 3.0, 1e5)),
    "alpha of a tensor": (
        lambda x, n: torch.add(x.half(), x.half(), alpha=n),
        (torch.tensor(1.5), torch.tensor(1e5)),
    ),
    "value of a computed float": (
        lambda x, n: torch.addcmul(x.half(), x.half(), x.half(), value=_times(n)),
        (0.1, 3.0),
    ),
    "int32 of an int": (lambda x, n: x + torch.tensor(n, dtype=torch.int32), (5, 6, 7, 1 << 40, -5, -(1 << 40))),
    "int8 of ints": (lambda x, n: x + torch.tensor([n, 1, 2], dtype=torch.int8), (5, 6, 7, 300)),
    "a list": (lambda x, n: x + len([0] * n), (3, 4, 1 << 62)),
    "a tuple, and nothing else": (lambda x, n: (0,) * n, (3, 1 << 62)),
    "bytes, and nothing else": (lambda x, n: len(bytes(n)), (3, 1 << 62)),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_number_too_large_raises_as_in_eager(name: str) -> None:
    function, numbers = TOO_LARGE[name]
    intarsia.reset()
    fast = intarsia.compile(function, options={"on_error": "raise"})
    for n in numbers:
        assert _outcome(fast, n) == _outcome(function, n)


def _outcome(function: Callable[..., Any], n: Any) -> str:
    try:
        return repr(function(torch.tensor([1.0, 2.0, 3.0]), n))
    except (RuntimeError, MemoryError) as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("name", ["flip", "zeros_like", "sort", "full_like"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_like_a_dense_tensor_has_its_strides_along_single_elements(name: str, dynamic: bool) -> None:
    makers = {
        "flip": lambda x: x.flip(0),
        "zeros_like": torch.zeros_like,
        "sort": lambda x: x.sort(dim=0)[0],
        "full_like": lambda x: torch.full_like(x, 2.0),
    }
    program = makers[name]
    compiled = intarsia.compile(program, backend="kernels", dynamic=dynamic, options={"on_error": "raise"})
    for n in (4, 6):
        inputs = [torch.randn(1, n, 3).permute(1, 0, 2), torch.empty_strided((n, 1, 3), (3, 77, 1)).fill_(1.0)]
        inputs += [torch.randn(n, 2, 3)[:, :1], torch.randn(n, 1, 4).transpose(0, 2)]
        for x in inputs:
            assert compiled(x).stride() == program(x).stride()


_KINKED = {
    "celu": F.celu,
    "elu": F.elu,
    "elu in place": lambda x: F.elu(x * 1, inplace=True),
    "hardshrink": F.hardshrink,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardtanh": F.hardtanh,
    "relu6": F.relu6,
    "selu": F.selu,
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, torch.zeros_like(x), reduction="none"),
    "softshrink": F.softshrink,
    "threshold": lambda x: F.threshold(x, 0.0, 6.0),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", _KINKED)
def test_gradients_at_kinks_and_at_nan_are_those_of_whole_vectors(name: str, dtype: torch.dtype, fresh) -> None:
    function = _KINKED[name]
    values = torch.tensor([NAN, INF, -INF, 3.0, -3.0, 0.5, -0.5, 0.0, 6.0, 1.0, -1.0])
    x, y = (values.repeat_interleave(32).to(dtype).requires_grad_() for _ in range(2))
    intarsia.compile(function, options={"on_error": "raise"})(x).sum().backward()
    function(y).sum().backward()
    tolerance = 1e-2 if dtype is torch.bfloat16 else 1e-6  # eager multiplies doubles with a float32 sixth
    torch.testing.assert_close(x.grad, y.grad, rtol=tolerance, atol=0, equal_nan=True)
    assert intarsia.stats().fallbacks == 0


@pytest.mark.parametrize("size", [2, 3, 4, 5, 8])
def test_a_short_matrix_and_its_transpose_in_one_kernel(size: int) -> None:
    # GCC 12 deleted the call of the kernel at 4, and the result was what the memory held before
    w = torch.arange(1.0, size * size + 1).reshape(size, size)
    _same(lambda w: w + w.triu().T, w)
    _same(lambda w: w.triu() + w.triu(1).T, w)
