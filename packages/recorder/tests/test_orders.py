"""The order in which elementwise results lie in memory: of operands that are repeated, turned, and of other types."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

from intarsia_recorder import EagerMode

_TYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
]
_OF_TWO = """
    add sub mul div floor_divide fmod remainder pow atan2 hypot copysign xlogy maximum minimum fmax eq ne lt ge
    logical_and logical_or logical_xor bitwise_and bitwise_or logaddexp rsub gcd complex polar
"""
_OF_ONE = ("exp", "sigmoid", "sqrt", "isinf", "isnan", "abs", "neg")
_OPS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    **{name: getattr(torch, name) for name in _OF_TWO.split()},
    **{name: (lambda a, b, f=getattr(torch, name): f(a)) for name in _OF_ONE},
    "add with alpha": lambda a, b: torch.add(a, b, alpha=2),
    "div, rounded": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "where": lambda a, b: torch.where(a > 1, a, b),
    "where, by bools": lambda a, b: torch.where(a.bool(), 1.0, b),
    "clamp": lambda a, b: torch.clamp(a, b, b),
    "clamp, one side": lambda a, b: torch.clamp(a, max=b),
    "addcmul": lambda a, b: torch.addcmul(a, b, a),
    "compared with a number": lambda a, b: a == 1.5,
    "times a number": lambda a, b: a * 2.5,
    "a power": lambda a, b: a**2,
    "mse_loss": lambda a, b: torch.nn.functional.mse_loss(a, b, reduction="none"),
    "smooth_l1_loss": lambda a, b: torch.nn.functional.smooth_l1_loss(a, b, reduction="none"),
}


def _operand(chance: random.Random, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor that broadcasts to a shape: turned, with gaps, with dimensions of one element or repeated."""
    shape = [1 if chance.random() < 0.2 else n for n in shape]
    shape = shape[1:] if len(shape) > 1 and chance.random() < 0.15 else shape
    order = chance.sample(range(len(shape)), len(shape))
    x = torch.randint(1, 3, [shape[d] * chance.choice([1] * 9 + [2]) for d in order]).to(dtype)
    x = x.permute([order.index(d) for d in range(len(shape))])[tuple(slice(n) for n in shape)]
    for dim in range(len(shape)):
        if chance.random() < 0.2:
            x = x.narrow(dim, 0, 1).expand([n if d == dim else x.shape[d] for d, n in enumerate(shape)])
    return x


@pytest.mark.filterwarnings("ignore:.*different to the input size")
@pytest.mark.parametrize("name", _OPS)
def test_results_lie_in_eagers_order(name: str) -> None:
    chance, compared = random.Random(name), 0
    while compared < 30:
        shape = [chance.choice([1, 2, 3]) for _ in range(chance.choice([2, 3, 3, 4]))]
        first = chance.choice(_TYPES)
        a, b = _operand(chance, shape, first), _operand(chance, shape, chance.choice([first, first, *_TYPES]))
        try:
            eager = _OPS[name](a, b)
        except RuntimeError:  # not of these types
            continue
        mode = EagerMode()
        with mode:
            ours = _OPS[name](mode.from_tensor(a), mode.from_tensor(b))
        operands = [(x.dtype, x.shape, x.stride()) for x in (a, b)]
        assert (ours.dtype, ours.shape, ours.stride()) == (eager.dtype, eager.shape, eager.stride()), operands
        compared += 1
