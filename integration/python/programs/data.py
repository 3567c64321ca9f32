"""Sizes and numbers from data, assertions about them, and distributions, which check their arguments."""

from __future__ import annotations

import torch
from torch import randn
from torch.distributions import Categorical, Normal, kl_divergence

from integration.python.program import program

# which formula it is, is kept from the first time on
kl_divergence(Normal(0.0, 1.0), Normal(0.0, 1.0))


def lengths():
    return torch.randint(1, 5, (3,))


@program("sizes from data", lambda: (randn(8), torch.randint(1, 8, ())))
def first_n(x, n):
    return x[: n.item()] * 2


@program("sizes from data", lambda: (randn(4, 6), lengths()))
def mask_of_lengths(x, n):
    longest = int(n.max())
    return torch.arange(longest)[None, :] < n[:, None]


@program("sizes from data", lambda: (randn(3, 2), lengths()))
def repeated_by_counts(x, n):
    return torch.repeat_interleave(x, n, dim=0) + 1


@program("sizes from data", lambda: (randn(9),))
def only_the_positive(x):
    return x[x > 0] * 2


@program("sizes from data", lambda: (randn(3, 5),))
def places_of_the_positive(x):
    return torch.nonzero(x > 0), (x > 0).nonzero(as_tuple=True)[1] + 1


@program("sizes from data", lambda: (torch.randint(0, 4, (9,)),))
def distinct_values(x):
    values, counts = torch.unique(x, return_counts=True)
    return values * 2, counts


@program("sizes from data", lambda: (randn(6, 2), torch.tensor([1, 2, 3])))
def split_by_numbers_of_a_tensor(x, n):
    return [part.sum(0) for part in torch.split(x, n.tolist())]


@program("sizes from data", lambda: (randn(4), torch.randint(2, 6, ())))
def new_tensor_of_a_size(x, n):
    k = n.item()
    torch._check(k >= 2)
    return torch.zeros(k, 4) + x


@program("sizes from data", lambda: (randn(10), torch.randint(2, 5, ())))
def checked_slice(x, n):
    k = n.item()
    torch._check_is_size(k)
    torch._check(k <= x.shape[0])
    return x[:k].sum(), x[k:].mean()


@program("sizes from data", lambda: (randn(3, 4), torch.randint(0, 3, ())))
def row_by_number(x, i):
    return x[i.item()] + 1, x[: int(i), 0] + 1


@program(
    "sizes from data",
    lambda: (randn(3, 4), torch.randint(0, 3, ())),
    breaks=("tracer.data_dependent",),
)
def view_of_the_first_rows(x, i):
    return x + 1, x[: int(i), 0]


@program(
    "sizes from data",
    lambda: (randn(3, 4), torch.randint(0, 3, ())),
    graphs=2,
    breaks=("tracer.data_dependent",),
)
def row_by_select(x, i):
    return (x * 2).select(0, int(i)) + 1


@program("sizes from data", lambda: (torch.randint(0, 2, (8,)),))
def count_of_ones(x):
    n = x.sum().item()
    return torch.full((3,), n) + x[:3], n


@program("sizes from data", lambda: (randn(7), randn(7) > 0))
def masked_select_and_put_back(x, mask):
    out = torch.zeros_like(x)
    out[mask] = x[mask].exp()
    return out


@program("numbers from data", lambda: (randn(4),), graphs=2, breaks=("tracer.tensor_value",), calls=3, recompiles=1)
def scaled_by_its_largest(x):
    top = float(x.abs().max())
    return x / (top + 1e-6), top


@program("numbers from data", lambda: (randn(3, 2),))
def losses_in_a_list(x):
    losses = []
    for row in x:
        losses.append(row.square().mean().item())
    return x * 2, losses


@program("numbers from data", lambda: (randn(4),))
def tensor_of_items(x):
    return torch.tensor([x[0].item(), x[1].item(), 2.0]) * x.sum()


@program("numbers from data", lambda: (torch.randint(0, 9, (2, 3)),), breaks=("tracer.tensor_value",))
def nested_list_of_numbers(x):
    return x.tolist(), x + 1


@program("numbers from data", lambda: (randn(3), torch.tensor(2.5)))
def number_in_a_dict(x, t):
    return {"loss": t.item(), "twice": 2 * t.item(), "value": x * t}


@program("numbers from data", lambda: (randn(3),))
def text_of_a_loss(x):
    loss = x.square().mean()
    return x + 1, f"loss {loss.item():.3f}", f"{loss:.2f}"


@program("assertions", lambda: (randn(4).abs() + 1,))
def all_are_positive(x):
    assert (x > 0).all(), "all must be positive"
    return x.log()


@program("assertions", lambda: (randn(4),))
def checked_tensor(x):
    torch._check_tensor_all(x.isfinite(), lambda: "not finite")
    return x * 2


@program("assertions", lambda: (torch.randint(0, 5, (6,)), randn(5, 2)))
def ids_in_range(ids, table):
    assert ids.min() >= 0 and ids.max() < table.shape[0]
    return table[ids]


@program("assertions", lambda: (randn(4),))
def asserted_async(x):
    torch._assert_async((x.abs() < 100).all())
    return x.tanh()


@program("assertions", lambda: (randn(2, 3),))
def raised_if_not_finite(x):
    if not torch.isfinite(x).all():
        raise ValueError("not finite")
    return x.softmax(-1)


@program("assertions", lambda: (randn(2, 3),))
def assertion_on_shapes(x):
    b, n = x.shape
    torch._assert(n == 3, "three columns")
    assert b % 2 == 0, f"an even batch, not {b}"
    return x.view(b // 2, 2, n)


@program("distributions", lambda: (randn(3, 4),))
def log_prob_of_a_category(logits):
    return Categorical(logits=logits).log_prob(torch.tensor([0, 1, 3]))


@program("distributions", lambda: (randn(4), randn(4).abs() + 0.1))
def normal_with_checks(mean, scale):
    d = Normal(mean, scale)
    return d.log_prob(mean + 1), d.entropy(), d.cdf(mean)


@program("distributions", lambda: (randn(4), randn(4).abs() + 0.1))
def reparametrised_sample(mean, scale):
    z = Normal(mean, scale).rsample((2,))
    return z.mean(0), kl_divergence(Normal(mean, scale), Normal(torch.zeros(4), torch.ones(4))).sum()


@program("distributions", lambda: (randn(2, 5),))
def policy_step(logits):
    policy = Categorical(logits=logits)
    action = policy.sample()
    return action, policy.log_prob(action), policy.entropy().mean()
