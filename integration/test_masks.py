"""Causal masks as people write them; constants of every layout, written and returned: in one graph, as eager."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import intarsia

pytestmark = pytest.mark.usefixtures("fresh")

INF = float("-inf")


def as_eager(f, *args):
    """Compare results, what is written to the arguments, and strides; everything must be compiled."""
    mine, theirs = ([a.detach().clone().requires_grad_(a.requires_grad) for a in args] for _ in range(2))
    want, got = f(*theirs), intarsia.compile(f, fullgraph=True, options={"on_error": "raise"})(*mine)
    torch.testing.assert_close(got, want, check_stride=True)
    torch.testing.assert_close([*mine], [*theirs])
    stats = intarsia.stats()
    assert stats.frames_compiled >= 1 and stats.fallbacks == 0


def bart(x):
    n = x.shape[-1]
    mask, places = torch.full((n, n), torch.finfo(x.dtype).min), torch.arange(n)
    mask.masked_fill_(places < (places + 1).view(n, 1), 0)
    return x + mask[None].expand(2, n, n)


def square_subsequent(x):
    mask = (torch.triu(torch.ones(3, 3)) == 1).transpose(0, 1)
    return x + mask.float().masked_fill(mask == 0, INF).masked_fill(mask == 1, 0.0)


def zeroed_column(x):
    mask = torch.triu(torch.full((3, 3), INF), 1)[None].expand(2, 3, 3).clone()
    mask[:, 0] = 0.0
    return x + mask


def written_into(x):
    made = torch.zeros(2, 3, 3)
    made[0] = torch.tensor([1.0, 2, 3])[:, None]
    return made + x


def copied(x):
    x.copy_(torch.tensor(2.0))
    return x * 1


def stored(x):
    x[:] = torch.tensor([3.0])


class Registered(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("bias", torch.tril(torch.ones(8, 8)).view(1, 1, 8, 8))
        self.register_buffer("mask", torch.full((8, 8), INF).triu(1)[None].expand(2, 8, 8), persistent=False)

    def forward(self, x):
        scores = x.masked_fill(self.bias[0, :, :3, :3] == 0, INF)
        return F.softmax(scores, -1) + (x + self.mask[:, :3, :3]).softmax(-1)


MASKS = {
    "triu of full, expanded": lambda x: x + torch.triu(torch.full((3, 3), -5.0), 1)[None].expand(2, 3, 3),
    "triu of full": lambda x: x + torch.triu(torch.full((3, 3), INF), 1),
    "triu of ones": lambda x: x.masked_fill(torch.triu(torch.ones(3, 3, dtype=bool), 1)[None].expand(2, -1, -1), INF),
    "tril == 0": lambda x: x.masked_fill(torch.tril(torch.ones(3, 3)) == 0, INF),
    "not tril": lambda x: x.masked_fill(~torch.tril(torch.ones(3, 3, dtype=torch.bool)), INF),
    "where of arange": lambda x: torch.where(torch.arange(3)[:, None] >= torch.arange(3)[None], x, INF),
    "arange, repeated": lambda x: x.masked_fill((torch.arange(3) > torch.arange(3)[:, None]).repeat(2, 1, 1), INF),
    "arange, expanded": lambda x: x.masked_fill(torch.arange(3).expand(3, 3) > torch.arange(3).expand(3, 3).t(), INF),
    "tril of a larger buffer": lambda x: x.masked_fill(torch.tril(torch.ones(8, 8)).view(1, 8, 8)[:, :3, :3] == 0, INF),
    "1 - triu": lambda x: x * (1 - torch.triu(torch.ones(1, 3, 3), 1)).bool(),
    "nn.Transformer": lambda x: x + torch.nn.Transformer.generate_square_subsequent_mask(3),
    "numpy": lambda x: x.masked_fill(NUMPY == 1, INF),
    "where of finfo": lambda x: torch.where(
        torch.ones(3, 3).tril().bool()[None].expand(2, 3, 3), x, torch.finfo(x.dtype).min
    ),
    "where of a tensor": lambda x: torch.where(torch.ones(3, 3).tril().bool(), x, torch.tensor(INF)),
    "masked zeros": lambda x: x + torch.zeros(3, 3).masked_fill(torch.ones(3, 3).triu(1).bool(), INF).repeat(2, 1, 1),
    "tril_indices": lambda x: x + torch.full((3, 3), INF).index_put(tuple(torch.tril_indices(3, 3)), torch.tensor(0.0)),
    "sdpa of bools": lambda x: F.scaled_dot_product_attention(x, x, x, torch.ones(3, 3).tril().bool().expand(2, 3, 3)),
    "sdpa of floats": lambda x: F.scaled_dot_product_attention(
        x, x, x, torch.full((3, 3), INF).triu(1).expand(2, 3, 3)
    ),
    "cumsum": lambda x: x.masked_fill(torch.ones(3, 3).cumsum(1) > torch.ones(3, 3).cumsum(0), INF),
    "filled in place": lambda x: x.clone().masked_fill_(torch.ones(3, 3).triu(1).bool().expand_as(x), INF),
    "alibi": lambda x: x + (torch.arange(3) - torch.arange(3)[:, None]).abs().expand(2, 3, 3) * torch.tensor(0.5),
    "window": lambda x: x.masked_fill((torch.arange(3)[:, None] - torch.arange(3)).abs() > 1, INF),
    "half": lambda x: x.half() + torch.triu(torch.full((3, 3), -1e4, dtype=torch.half), 1)[None].expand(2, 3, 3),
    "returned beside": lambda x: (x * 2, torch.triu(torch.full((3, 3), INF), 1)[None].expand(2, 3, 3)),
    "block": lambda x: x.masked_fill(~torch.block_diag(torch.ones(2, 2), torch.ones(1, 1)).bool(), INF),
    "band": lambda x: x + torch.ones(3, 3).tril(1).triu(-1).log(),
    "flipped": lambda x: x * torch.ones(3, 3).triu().flip(-1).expand_as(x),
    "bart": bart,
    "square subsequent": square_subsequent,
    "zeroed column": zeroed_column,
    "written into": written_into,
    "registered": Registered(),
}
NUMPY = torch.from_numpy(np.triu(np.ones((1, 3, 3)), k=1).astype("uint8"))


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("name", MASKS)
def test_a_mask_is_as_in_eager(name, graded):
    torch.manual_seed(0)
    as_eager(MASKS[name], torch.randn(2, 3, 3, requires_grad=graded))


@pytest.mark.parametrize("f", [copied, stored])
def test_a_constant_is_written_to_an_argument(f):
    as_eager(f, torch.randn(2, 3))


LAYOUTS = {
    "0-d, expanded": lambda t: t[0].expand(3),
    "expanded": lambda t: t.expand(2, 6),
    "transposed": lambda t: t.view(2, 3).t(),
    "offset": lambda t: t.view(2, 3)[:, 1:],
    "stepped": lambda t: t[1::2],
    "empty": lambda t: t[:0].view(0, 3).expand(2, 0, 3),
    "computed, expanded": lambda t: torch.cat([t, t]).view(3, 4).flip(0)[None].expand(2, 3, 4).transpose(0, 2),
}
TYPES = [
    torch.bool,
    torch.uint8,
    torch.int64,
    torch.half,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_constant_of_any_layout_is_returned(name, dtype):
    layout = LAYOUTS[name]
    as_eager(lambda x: (layout(torch.tensor([1, 0, 2, 0, 0, 3], dtype=dtype)), x + 1), torch.ones(2))
