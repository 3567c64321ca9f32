"""Additions by index in compiled programs: eager's values and gradients, from generated kernels alone."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import intarsia
from intarsia_loops import from_fx
from intarsia_loops.ops import NEST_KINDS
from intarsia_loops.program import Extern

RAISE = {"on_error": "raise"}


@pytest.fixture(autouse=True)
def fresh():
    intarsia.reset()
    torch.manual_seed(0)
    yield
    intarsia.reset()


class Bag(nn.Module):
    """Words and their positions, averaged over each line; lines are added up by their group."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(40, 24, padding_idx=3)
        self.places = nn.Embedding(12, 24)
        self.score = nn.Parameter(torch.randn(24) / 24)

    def forward(self, tokens, group):
        x = F.gelu(self.words(tokens) + self.places(torch.arange(12))[: tokens.shape[1]])
        sums = x.new_zeros(5, 24).index_add(0, group, x.mean(1))
        return (sums * self.score).sum(1)


class Watch:
    """A pipeline that notes which scatters and which library calls its graphs are lowered to."""

    def __init__(self):
        self.scatters, self.calls = [], []
        self.pipeline = intarsia.default_pipeline().after("lower", self._look)

    def _look(self, gm):
        for item in from_fx(gm).items:
            if isinstance(item, Extern):
                self.calls.append(str(item.target).split(".")[1])
            elif NEST_KINDS[item.kind].scatter:
                self.scatters.append(item.kind)
        return gm

    def compile(self, f):
        return intarsia.compile(f, pipeline=self.pipeline, options=RAISE, fullgraph=True)


def test_an_embedding_is_trained_as_in_eager():
    model = Bag()
    ours = copy.deepcopy(model)
    watch = Watch()
    compiled = watch.compile(ours)
    tokens, group = torch.randint(0, 40, (30, 12)), torch.randint(0, 5, (30,))
    tokens[0], tokens[1] = 3, tokens[2]
    for module, call in ((model, model), (ours, compiled)):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
        for step in range(3):
            optimizer.zero_grad()
            call(tokens.roll(step, 0), group).square().mean().backward()
            optimizer.step()
    for (name, a), b in zip(model.named_parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(b, a, msg=lambda m, name=name: f"{name}: {m}")
        torch.testing.assert_close(b.grad, a.grad, msg=lambda m, name=name: f"{name}: {m}")
    assert ours.words.weight.grad[3].eq(0).all()
    assert watch.scatters == ["scatter_sum"] * 3  # the sums of groups, and the gradients of both tables
    assert set(watch.calls) == {"_assert_async"}
    stats = intarsia.stats()
    assert (stats.graphs, stats.fallbacks, stats.frames_eager, stats.recompiles) == (1, 0, 0, 0)
    assert stats.kernels_generated > 0


GRADIENTS = {
    "index": lambda x, i: x[i] * 2,
    "index by two": lambda x, i: x[i[:3], i[1:4]].sin(),
    "gather": lambda x, i: x.gather(0, i[:, None].expand(-1, 4)),
    "index_select": lambda x, i: x.index_select(1, i % 4).exp(),
    "index_put": lambda x, i: torch.index_put(x * 2, (i,), x[:1], accumulate=True),
    "scatter_add": lambda x, i: (x * 2).scatter_add(0, i[:, None].expand(-1, 4), x[:1].expand(6, 4).cos()),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_reads_by_index(name):
    f, watch = GRADIENTS[name], Watch()
    i = torch.tensor([0, 3, 3, 1, 0, 3])
    found = []
    for g in (f, watch.compile(f)):
        x = torch.linspace(-1, 1, 24).view(6, 4).requires_grad_()
        y = g(x, i)
        y.backward(torch.linspace(0, 1, y.numel()).view(y.shape))
        found.append((y.detach(), x.grad))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(b, a)
    assert watch.scatters and set(watch.calls) <= {"_assert_async"}
    assert intarsia.stats().fallbacks == 0 and intarsia.stats().kernels_generated > 0


@pytest.mark.parametrize("bad", [5, -1])
def test_an_index_out_of_range_raises_eagers_error(bad):
    def f(x, i, v):
        return x.index_add(0, i, v * 2)

    x, v = torch.zeros(5, 3), torch.ones(2, 3)
    compiled = intarsia.compile(f, options=RAISE, fullgraph=True)
    torch.testing.assert_close(compiled(x, torch.tensor([4, 4]), v), f(x, torch.tensor([4, 4]), v))
    with pytest.raises(Exception) as eager:
        f(x, torch.tensor([0, bad]), v)
    with pytest.raises(type(eager.value), match=str(eager.value).split("\n")[0][:30]):
        compiled(x, torch.tensor([0, bad]), v)


def test_sizes_that_change_share_a_kernel():
    compiled = intarsia.compile(lambda x, i, v: x.index_add(0, i, v * 2), options=RAISE, dynamic=True)
    for n, m in ((5, 7), (9, 2), (40, 130)):
        x, v, i = torch.randn(n, 6), torch.randn(m, 6), torch.randint(0, n, (m,))
        torch.testing.assert_close(compiled(x, i, v), x.index_add(0, i, v * 2))
    stats = intarsia.stats()
    assert (stats.graphs, stats.fallbacks) == (1, 0)
