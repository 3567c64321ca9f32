"""Negative and conjugate bits: a tensor whose memory holds other numbers than it shows, on every way into and out of a
graph. Values, strides and the bits themselves are eager's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import intarsia

RAISE = {"on_error": "raise"}
Z = torch.randn(3, 4, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))


def negative() -> Tensor:
    return Z.clone().conj().imag


def conjugate() -> Tensor:
    return Z.clone().conj()


def plain() -> Tensor:
    return Z.clone()


def facts(value: Any) -> Any:
    """Return what a caller can see of a result but its values."""
    if isinstance(value, tuple | list):
        return [facts(item) for item in value]
    if not isinstance(value, Tensor):
        return value
    return value.dtype, value.shape, value.stride(), value.is_conj(), value.is_neg(), value.requires_grad


def numbers(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [numbers(item) for item in value]
    return value.detach().resolve_conj().resolve_neg() if isinstance(value, Tensor) else value


def check(actual: Any, expected: Any) -> None:
    assert facts(actual) == facts(expected)
    torch.testing.assert_close(numbers(actual), numbers(expected))


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    intarsia.reset()
    return intarsia.compile(function, options=RAISE, **options)


def broken(x: Tensor) -> Any:
    """A function of two graphs: what crosses the break carries bits."""
    y, z = (x + 1).conj().imag, x.conj()
    print(end="")
    return y * 2, z + 1, y, z, y.is_neg(), z.is_conj()


def written(x: Tensor) -> Any:
    x.mul_(2)
    return x, x + 1


FORWARD: dict[str, tuple[Callable[[Any], Any], Callable[[], Tensor]]] = {
    "a negative argument": (lambda x: (x * 2, x.sum(0)), negative),
    "a conjugate argument": (lambda x: (x * 2, x.sum(0)), conjugate),
    "arguments returned": (lambda x: (x, x[1:], x.t(), x + 0), negative),
    "conjugates returned": (lambda x: (x, x[1:], x.mH, x + 0), conjugate),
    "a view of an argument": (lambda x: (x.conj(), x.mH, x.conj().imag, x.adjoint()), plain),
    "a view of a result": (lambda x: (x + 1).conj(), plain),
    "an adjoint of a result": (lambda x: (x + 1).mH, plain),
    "a negative view of a result": (lambda x: (x + 1).conj().imag, plain),
    "two objects over one result": (lambda x: (lambda y: (y, y.conj(), y.mH.imag))(x + 1), plain),
    "asked inside": (lambda x: (x.conj().is_conj(), x.conj().imag.is_neg(), (x.conj() + 1).is_conj(), x + 1), plain),
    "resolved inside": (lambda x: (x.is_neg(), x.resolve_neg(), x.clone(), x.contiguous()), negative),
    "converted": (lambda x: (x.double(), x.to(torch.bfloat16)), negative),
    "multiplied": (lambda x: (x @ x.mH, x.mT @ x), conjugate),
    "dotted": (
        lambda x: (torch.vdot(x[0], x[1].conj()), torch.vdot(x[0].conj(), x[1]), torch.vdot(x[0], x[1])),
        conjugate,
    ),
    "dotted with a conjugate": (lambda x: (torch.vdot(x[0], x[1].conj()), torch.dot(x[0].conj(), x[1].conj())), plain),
    "written": (written, negative),
    "conjugate, written": (written, conjugate),
    "copied into": (lambda x: (x.copy_(torch.ones(3, 4)), x + 1), negative),
    "across a break": (broken, plain),
    "joined": (lambda x: (torch.cat([x, -x]), torch.stack([x, x.exp()])), negative),
}


@pytest.mark.parametrize("name", FORWARD)
def test_bits_as_in_eager(name: str) -> None:
    function, make = FORWARD[name]
    theirs, ours = make(), make()
    expected, actual = function(theirs), compiled(function)(ours)
    check(actual, expected)
    check(ours, theirs)


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_entries_are_kept_apart(dynamic: bool | None) -> None:
    function = compiled(lambda x: x * 2, dynamic=dynamic)
    for x in (Z.imag, Z.conj().imag, Z.real, Z.conj().imag[:, :2]):
        check(function(x), x * 2)


def test_one_entry_takes_every_size() -> None:
    function = compiled(lambda x: (x * 2, x.sum(0)), dynamic=True)
    for n in (3, 5, 2, 7):
        x = torch.randn(n, 4, dtype=torch.complex64).conj().imag
        check(function(x), (x * 2, x.sum(0)))
    assert intarsia.stats().graphs == 1


def test_bits_alone_are_guarded() -> None:
    function = compiled(lambda x: (x.is_neg(), x.is_conj(), torch.ones(2)))
    assert [function(x)[:2] for x in (Z.imag, Z.conj().imag, Z, Z.conj())] == [
        (False, False),
        (True, False),
        (False, False),
        (False, True),
    ]


class Scaled(torch.nn.Module):
    def __init__(self, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def test_a_buffer_that_is_replaced() -> None:
    module, x = Scaled(Z.imag), torch.randn(3, 4)
    function = compiled(module)
    for scale in (Z.imag, Z.conj().imag, Z.imag):
        module.scale = scale
        check(function(x), x * scale)


GLOBAL = negative()


def test_globals_and_literals() -> None:
    def function(x: Tensor) -> Any:
        literal = torch.tensor([1 + 2j, 3j, 1, 2]).conj()
        return x * GLOBAL, x * literal, x.real * literal.imag, GLOBAL

    check(compiled(function)(plain()), function(plain()))


def test_view_as_real_and_numpy_refuse() -> None:
    with pytest.raises(RuntimeError, match="view_as_real doesn't work on unresolved conjugated"):
        torch.view_as_real(compiled(lambda x: (x + 1).conj())(plain()))
    with pytest.raises(RuntimeError, match="negative"):
        compiled(lambda x: (x + 1).conj().imag)(plain()).numpy()


# ---- with gradients ----------------------------------------------------------------------------------------------

TRAINED: dict[str, Callable[[Tensor], Any]] = {
    "imag of a conjugate": lambda w: w.conj().imag * 2,
    "conjugate product": lambda w: w.conj() * w,
    "conjugate": lambda w: w.conj(),
    "adjoint of a result": lambda w: (w * 2).mH,
    "negative view": lambda w: w.conj().imag,
    "negative view of a result": lambda w: (w + 1).conj().imag,
    "two views": lambda w: ((w * 2).conj(), (w * 3).mH),
    "a product with its adjoint": lambda w: w @ w.mH,
    "abs": lambda w: w.abs(),
    "a product of two conjugates": lambda w: torch.dot(w.flatten().conj(), w.flatten().conj()),
    "a complex number": lambda w: (w.real * 1j + w.imag).conj(),
}


def step(function: Callable[[Tensor], Any], leaf: Tensor, bits: bool) -> list[Any]:
    """Return outputs and gradient, for tangents with or without a bit."""
    result = function(leaf)
    outputs = [result] if isinstance(result, Tensor) else list(result)
    numbers = torch.Generator().manual_seed(1)
    tangents = []
    for output in outputs:
        drawn = torch.empty_strided(output.shape, output.stride(), dtype=torch.complex64)
        drawn.copy_(torch.randn(output.shape, dtype=torch.complex64, generator=numbers))
        drawn = drawn.conj() if bits else drawn
        tangents.append(drawn if output.is_complex() else drawn.imag)
    return [*outputs, *(g.resolve_conj().resolve_neg() for g in torch.autograd.grad(outputs, [leaf], tangents))]


@pytest.mark.parametrize("bits", [False, True])
@pytest.mark.parametrize("name", TRAINED)
def test_gradients(name: str, bits: bool) -> None:
    function, leaf = TRAINED[name], Z.clone().requires_grad_()
    actual, expected = step(compiled(function), leaf, bits), step(function, leaf, bits)
    assert facts(actual[:-1]) == facts(expected[:-1])
    torch.testing.assert_close(numbers(actual), numbers(expected))


@pytest.mark.parametrize("function", [torch.sin, lambda x: x * x.exp(), lambda x: (x, x + 1)])
def test_negative_arguments_with_gradients(function: Callable[[Tensor], Any]) -> None:
    leaf = Z.clone().requires_grad_()
    graph = compiled(function)
    actual, expected = (
        step(lambda w: graph(w.conj().imag), leaf, True),
        step(lambda w: function(w.conj().imag), leaf, True),
    )
    check(actual, expected)


def test_zeros_without_memory() -> None:
    zeros = torch._efficientzerotensor(3)
    check(compiled(lambda x: x + torch.ones(3))(zeros), torch.ones(3))
    leaf = torch.ones(3, requires_grad=True)
    (gradient,) = torch.autograd.grad(compiled(torch.sin)(leaf), leaf, zeros)
    check(gradient, torch.zeros(3))
