"""Shape programs: (name, [(input, dynamic dimensions)], function), one idea each."""

import math

import torch
import torch.nn.functional as F

R = torch.randn
INT = lambda hi, *s: torch.randint(0, hi, s)


def int_size(n):
    if isinstance(n, torch.SymInt):
        torch._check(n >= 0)
    return n


CASES = [
    ("view(-1)", [(R(3, 4), (0, 1))], lambda x: x.view(-1)),
    ("reshape(b,-1)", [(R(3, 4, 8), (0, 1))], lambda x: x.reshape(x.shape[0], -1)),
    ("view heads", [(R(3, 5, 12), (0, 1))], lambda x: x.view(x.shape[0], x.shape[1], 4, 3).transpose(1, 2)),
    ("transpose.reshape (copy)", [(R(3, 4, 8), (0, 1))], lambda x: x.transpose(0, 1).reshape(-1, 8)),
    ("view(-1,4) of s0*4", [(R(6, 8), (0,))], lambda x: x.view(-1, 4)),
    ("view(-1,2) mod guard", [(R(6, 5), (0, 1))], lambda x: x.view(-1, 2)),
    ("view(2,-1) then mul back", [(R(6, 5), (0,))], lambda x: x.view(2, -1, 5).reshape(-1, 5)),
    ("cat", [(R(3, 4), (0, 1)), (R(5, 4), (0,))], lambda x, y: torch.cat([x, y], 0)),
    ("cat eq guard", [(R(3, 4), (0, 1)), (R(5, 4), (0, 1))], lambda x, y: torch.cat([x, y], 0)),
    ("broadcast add", [(R(3, 4), (0, 1)), (R(4), (0,))], lambda x, y: x + y),
    ("add two syms eq", [(R(3, 4), (0, 1)), (R(3, 4), (0, 1))], lambda x, y: x + y),
    ("matmul", [(R(3, 4), (0, 1)), (R(4, 7), (0, 1))], lambda x, y: x @ y),
    ("matmul 4d", [(R(2, 3, 5, 6), (0, 1, 2)), (R(2, 3, 6, 7), (0, 1, 3))], lambda x, y: x @ y),
    ("bmm", [(R(2, 3, 4), (0, 1, 2)), (R(2, 4, 7), (0, 1, 2))], torch.bmm),
    ("linear", [(R(2, 5, 8), (0, 1)), (R(16, 8), ()), (R(16), ())], F.linear),
    ("conv2d", [(R(2, 3, 32, 28), (0, 2, 3)), (R(8, 3, 3, 3), ())], lambda x, w: F.conv2d(x, w, stride=2, padding=1)),
    (
        "conv2d chain",
        [(R(2, 3, 32, 28), (0, 2, 3)), (R(8, 3, 3, 3), ()), (R(8, 8, 3, 3), ())],
        lambda x, w, v: F.conv2d(F.relu(F.conv2d(x, w, stride=2, padding=1)), v, padding=1),
    ),
    (
        "conv_transpose2d",
        [(R(2, 3, 9, 7), (0, 2, 3)), (R(3, 8, 3, 3), ())],
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1),
    ),
    ("conv1d", [(R(2, 3, 32), (0, 2)), (R(8, 3, 3), ())], lambda x, w: F.conv1d(x, w, dilation=2)),
    ("softmax", [(R(3, 4), (0, 1))], lambda x: F.softmax(x, -1)),
    ("log_softmax+nll", [(R(6, 10), (0,)), (INT(10, 6), (0,))], lambda x, t: F.cross_entropy(x, t)),
    ("layer_norm", [(R(3, 4, 8), (0, 1)), (R(8), ()), (R(8), ())], lambda x, w, b: F.layer_norm(x, (8,), w, b)),
    ("group_norm", [(R(3, 8, 9, 7), (0, 2, 3)), (R(8), ()), (R(8), ())], lambda x, w, b: F.group_norm(x, 4, w, b)),
    ("embedding", [(INT(10, 3, 5), (0, 1)), (R(10, 8), ())], lambda i, w: F.embedding(i, w)),
    ("index_select", [(R(9, 4), (0, 1)), (INT(3, 6), (0,))], lambda x, i: torch.index_select(x, 0, i)),
    ("gather", [(R(9, 4), (0, 1)), (INT(4, 9, 3), (0, 1))], lambda x, i: torch.gather(x, 1, i)),
    ("advanced index", [(R(9, 4, 5), (0, 1)), (INT(3, 6), (0,))], lambda x, i: x[i]),
    ("advanced index mid", [(R(9, 4, 5), (0, 1, 2)), (INT(3, 6), (0,))], lambda x, i: x[:, i]),
    ("expand", [(R(3, 1), (0,))], lambda x: x.expand(-1, 7)),
    ("expand sym", [(R(3, 1, 4), (0, 2)), (R(5), (0,))], lambda x, y: x.expand(-1, y.shape[0], -1)),
    ("slice sym end", [(R(9, 4), (0, 1)), (R(5), (0,))], lambda x, y: x[: y.shape[0]]),
    ("slice 1:-1", [(R(9, 4), (0, 1))], lambda x: x[1:-1]),
    ("slice step", [(R(9, 4), (0, 1))], lambda x: x[::2]),
    ("slice const", [(R(9, 4), (0, 1))], lambda x: x[:3]),
    ("narrow half", [(R(9, 8), (0, 1))], lambda x: x.narrow(1, 0, x.shape[1] // 2)),
    ("chunk", [(R(9, 8), (0,))], lambda x: x.chunk(2, 1)),
    ("chunk sym dim", [(R(9, 8), (0, 1))], lambda x: x.chunk(2, 0)),
    ("split", [(R(9, 8), (0,))], lambda x: x.split([3, 5], 1)),
    ("arange(s0)", [(R(9), (0,))], lambda x: torch.arange(x.shape[0])),
    ("arange step", [(R(9), (0,))], lambda x: torch.arange(0, x.shape[0], 2)),
    (
        "full/ones",
        [(R(9, 3), (0, 1))],
        lambda x: (torch.ones(x.shape[0], x.shape[1] + 1), torch.full((x.shape[0] * 2,), 3.0)),
    ),
    ("tril mask", [(R(5, 9), (0, 1))], lambda x: torch.tril(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool))),
    ("nonzero", [(R(9, 3), (0, 1))], lambda x: x.nonzero()),
    ("nonzero use", [(R(9, 3), (0, 1))], lambda x: x.nonzero()[:, 0] * 2),
    ("mask index", [(R(9, 3), (0, 1))], lambda x: x[x[:, 0] > 0]),
    ("item unbacked size", [(torch.tensor(4), ())], lambda n: torch.ones(int_size(n.item()), 3)),
    ("item slice", [(torch.tensor(4), ()), (R(9, 3), (0,))], lambda n, x: x[: int_size(n.item())]),
    ("item arithmetic", [(torch.tensor(4), ()), (R(9, 3), (0,))], lambda n, x: x * n.item()),
    ("float item", [(torch.tensor(4.0), ()), (R(9, 3), (0,))], lambda n, x: x * n.item()),
    ("repeat_interleave", [(R(9, 3), (0,)), (INT(4, 9), (0,))], lambda x, r: torch.repeat_interleave(x, r, 0)),
    ("unique", [(INT(5, 9), (0,))], lambda x: torch.unique(x, return_inverse=True)),
    ("max_pool2d", [(R(2, 3, 32, 28), (0, 2, 3))], lambda x: F.max_pool2d(x, 3, 2, 1)),
    ("max_pool2d ceil", [(R(2, 3, 32, 28), (0, 2, 3))], lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True)),
    ("avg_pool2d", [(R(2, 3, 32, 28), (0, 2, 3))], lambda x: F.avg_pool2d(x, 2)),
    ("adaptive_avg_pool2d", [(R(2, 3, 32, 28), (0, 2, 3))], lambda x: F.adaptive_avg_pool2d(x, 1)),
    (
        "interpolate nearest x2",
        [(R(2, 3, 8, 7), (0, 2, 3))],
        lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
    ),
    (
        "interpolate bilinear size",
        [(R(2, 3, 8, 7), (0, 2, 3))],
        lambda x: F.interpolate(x, size=(16, 17), mode="bilinear"),
    ),
    (
        "interpolate bilinear 1.5",
        [(R(2, 3, 8, 7), (0, 2, 3))],
        lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"),
    ),
    (
        "interpolate to other's size",
        [(R(2, 3, 8, 7), (0, 2, 3)), (R(2, 3, 16, 13), (0, 2, 3))],
        lambda x, y: F.interpolate(x, size=y.shape[2:], mode="bilinear") + y,
    ),
    (
        "sdpa",
        [(R(2, 4, 9, 8), (0, 2)), (R(2, 4, 9, 8), (0, 2)), (R(2, 4, 9, 8), (0, 2))],
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
    ),
    (
        "sdpa causal",
        [(R(2, 4, 9, 8), (0, 2)), (R(2, 4, 9, 8), (0, 2)), (R(2, 4, 9, 8), (0, 2))],
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    ),
    (
        "sdpa transposed qkv",
        [(R(2, 9, 96), (0, 1))],
        lambda x: (
            F.scaled_dot_product_attention(
                *[t.view(x.shape[0], x.shape[1], 4, 8).transpose(1, 2) for t in x.split(32, -1)]
            )
            .transpose(1, 2)
            .reshape(x.shape[0], x.shape[1], 32)
        ),
    ),
    (
        "sdpa mask",
        [(R(2, 4, 9, 8), (0, 2)), (R(2, 4, 9, 8), (0, 2)), (R(2, 4, 9, 8), (0, 2)), (R(9, 9), (0, 1))],
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
    ),
    (
        "batch_norm train",
        [(R(3, 8, 9, 7), (0, 2, 3)), (R(8), ()), (R(8), ()), (R(8), ()), (R(8), ())],
        lambda x, rm, rv, w, b: F.batch_norm(x, rm, rv, w, b, training=True),
    ),
    ("sum/mean/var", [(R(3, 8, 9), (0, 1, 2))], lambda x: (x.sum(-1), x.mean((0, 2), keepdim=True), x.var(1))),
    ("topk", [(R(9, 8), (0,))], lambda x: x.topk(3, 1)),
    ("sort", [(R(9, 8), (0, 1))], lambda x: x.sort(1)),
    ("cumsum", [(R(9, 8), (0, 1))], lambda x: x.cumsum(1)),
    ("stack", [(R(9, 8), (0, 1)), (R(9, 8), (0, 1))], lambda x, y: torch.stack([x, y], 1)),
    ("permute.contiguous", [(R(2, 3, 8, 7), (0, 2, 3))], lambda x: x.permute(0, 2, 3, 1).contiguous()),
    ("channels_last", [(R(2, 3, 8, 7), (0, 2, 3))], lambda x: F.relu(x.contiguous(memory_format=torch.channels_last))),
    ("pad", [(R(2, 3, 8, 7), (0, 2, 3))], lambda x: F.pad(x, (1, 2, 3, 4))),
    ("pad sym", [(R(2, 3, 8), (0, 2)), (R(5), (0,))], lambda x, y: F.pad(x, (0, y.shape[0]))),
    ("flip/roll", [(R(9, 8), (0, 1))], lambda x: torch.roll(x.flip(0), x.shape[0] // 2, 0)),
    ("unfold", [(R(9, 8), (0, 1))], lambda x: x.unfold(0, 3, 1)),
    (
        "as_strided",
        [(R(9, 8), (0, 1))],
        lambda x: x.as_strided((x.shape[0] - 1, x.shape[1]), (x.shape[1], 1), x.shape[1]),
    ),
    ("einsum", [(R(2, 3, 4), (0, 1, 2)), (R(2, 4, 5), (0, 1, 2))], lambda x, y: torch.einsum("bij,bjk->bik", x, y)),
    ("where", [(R(9, 8), (0, 1)), (R(8), (0,))], lambda x, y: torch.where(x > 0, x, y)),
    ("one_hot", [(INT(5, 9), (0,))], lambda x: F.one_hot(x, 5)),
    (
        "scatter_add",
        [(R(9, 4), (0, 1)), (INT(9, 9, 4), (0, 1)), (R(9, 4), (0, 1))],
        lambda x, i, s: x.scatter_add(0, i, s),
    ),
    ("repeat", [(R(9, 4), (0, 1))], lambda x: x.repeat(2, 3)),
    ("flatten/unflatten", [(R(2, 3, 8, 7), (0, 2, 3))], lambda x: x.flatten(1).unsqueeze(0)),
    ("pixel_shuffle", [(R(2, 12, 8, 7), (0, 2, 3))], lambda x: F.pixel_shuffle(x, 2)),
    ("baddbmm", [(R(2, 3, 7), (0, 1, 2)), (R(2, 3, 4), (0, 1, 2)), (R(2, 4, 7), (0, 1, 2))], torch.baddbmm),
    (
        "lstm cell-ish",
        [(R(2, 8), (0,)), (R(32, 8), ()), (R(32, 8), ())],
        lambda x, w, u: torch.chunk(F.linear(x, w) + F.linear(x, u), 4, 1),
    ),
    ("python branch on size", [(R(9, 4), (0, 1))], lambda x: x * 2 if x.shape[0] > 5 else x),
    ("python arithmetic", [(R(9, 4), (0, 1))], lambda x: x.new_zeros((x.shape[0] + 7) // 8 * 8, max(x.shape[1], 3))),
    ("sym_max", [(R(9, 4), (0, 1))], lambda x: x.new_zeros(torch.sym_max(x.shape[0], x.shape[1]))),
    ("sqrt scale", [(R(9, 4), (0, 1))], lambda x: x / (x.shape[1] ** 0.5)),
    ("math.sqrt (forces)", [(R(9, 4), (0, 1))], lambda x: x / math.sqrt(x.shape[1])),
]

UNBACKED = [
    ("nz index", [(R(9, 3), (0,))], lambda x: x[x[:, 0].nonzero().squeeze(1)]),
    ("mask matmul", [(R(9, 3), (0,)), (R(3, 4), ())], lambda x, w: x[x[:, 0] > 0] @ w),
    ("mask linear relu sum", [(R(9, 3), (0,)), (R(4, 3), ())], lambda x, w: F.relu(F.linear(x[x[:, 0] > 0], w)).sum(0)),
    ("mask softmax", [(R(9, 3), (0,))], lambda x: F.softmax(x[x[:, 0] > 0], -1)),
    ("mask layernorm", [(R(9, 8), (0,)), (R(8), ())], lambda x, w: F.layer_norm(x[x[:, 0] > 0], (8,), w, w)),
    ("mask view", [(R(9, 8), (0,))], lambda x: x[x[:, 0] > 0].view(-1, 2, 4)),
    (
        "mask view back",
        [(R(9, 8), (0,))],
        lambda x: (lambda y: y.view(y.shape[0], 2, 4).transpose(1, 2).reshape(y.shape[0], 8))(x[x[:, 0] > 0]),
    ),
    ("mask cat", [(R(9, 8), (0,))], lambda x: torch.cat([x[x[:, 0] > 0], x], 0)),
    ("two masks add same", [(R(9, 8), (0,))], lambda x: (lambda m: x[m] + x[m] * 2)(x[:, 0] > 0)),
    (
        "item ones check",
        [(torch.tensor(4), ())],
        lambda n: (lambda v: (torch._check(v >= 0), torch.ones(v, 3) + 1)[1])(n.item()),
    ),
    (
        "item range check",
        [(torch.tensor(4), ()), (R(9, 3), (0,))],
        lambda n, x: (lambda v: (torch._check(v >= 0), torch._check(v <= x.shape[0]), x.narrow(0, 0, v))[2])(n.item()),
    ),
    ("item select", [(torch.tensor(4), ()), (R(9, 3), (0,))], lambda n, x: x[n.item()]),
    (
        "item arange",
        [(torch.tensor(4), ())],
        lambda n: (lambda v: (torch._check(v >= 0), torch.arange(v))[1])(n.item()),
    ),
    (
        "tolist split",
        [(torch.tensor([4, 5]), ()), (R(9, 3), ())],
        lambda n, x: (lambda v: ([torch._check(q >= 0) for q in v], torch._check(v[0] + v[1] == 9), x.split(v, 0))[2])(
            n.tolist()
        ),
    ),
    (
        "item eq check",
        [(torch.tensor(9), ()), (R(9, 3), (0,))],
        lambda n, x: (lambda v: (torch._check(v == x.shape[0]), torch.ones(v, 3) + x)[1])(n.item()),
    ),
    ("nonzero as_tuple", [(R(9, 3), (0,))], lambda x: torch.nonzero(x, as_tuple=True)),
    ("masked_select", [(R(9, 3), (0,))], lambda x: torch.masked_select(x, x > 0)),
    ("index_put mask", [(R(9, 3), (0,))], lambda x: x.clone().index_put((x[:, 0] > 0,), torch.tensor(1.0))),
    (
        "moe-like scatter",
        [(R(9, 8), (0,)), (R(8, 8), ())],
        lambda x, w: (lambda i: torch.zeros_like(x).index_add(0, i, x[i] @ w))((x[:, 0] > 0).nonzero().squeeze(1)),
    ),
    ("repeat_interleave", [(R(9, 8), (0,)), (INT(4, 9), (0,))], lambda x, r: torch.repeat_interleave(x, r, 0).sum(0)),
    ("unique_consecutive", [(INT(4, 9), (0,))], lambda x: torch.unique_consecutive(x)),
    ("bincount", [(INT(4, 9), (0,))], lambda x: torch.bincount(x)),
    (
        "mask sdpa",
        [(R(9, 32), (0,))],
        lambda x: (lambda y: F.scaled_dot_product_attention(*[y.view(1, y.shape[0], 4, 8).transpose(1, 2)] * 3))(
            x[x[:, 0] > 0]
        ),
    ),
    ("mask pool branch numel", [(R(9, 8), (0,))], lambda x: x[x[:, 0] > 0].mean(0)),
    (
        "float item branchless",
        [(torch.tensor(4.0), ()), (R(9), (0,))],
        lambda n, x: x * torch.sym_max(n.item(), 1.0) if False else x / (n.item() + 1),
    ),
]
