"""Small models, recorded with the default table and functionalized: outputs, buffers and aliasing as in eager."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from intarsia_ir.errors import UnsupportedError
from intarsia_ir.records import AliasOfInput, AliasOfOutput, Fresh, InputItself


def lifted(module):
    """Return a function of the input and of every parameter and buffer, and the latter."""
    tensors = dict(module.state_dict(keep_vars=True))
    names = list(tensors)

    def function(x, *values):
        return functional_call(module, dict(zip(names, values, strict=True)), (x,))

    return function, tuple(t.detach().clone() for t in tensors.values())


def test_mlp(check_program):
    function, state = lifted(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)))
    done = check_program(function, torch.randn(5, 8), *state)
    assert not done.signature.writes and not done.guards


def test_convolution_and_batch_norm_in_inference(check_program):
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2)
    ).eval()
    function, state = lifted(module)
    done = check_program(function, torch.randn(2, 3, 8, 8), *state)
    assert not done.signature.writes, "running statistics are read only"


def test_batch_norm_in_training_updates_its_buffers(check_program):
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).train()
    function, state = lifted(module)
    done = check_program(function, torch.randn(2, 3, 8, 8), *state, rtol=1e-5, atol=1e-5)
    written = [done.signature.inputs[w.input].name for w in done.signature.writes]
    assert len(written) == 3, "mean, variance and the number of batches"
    assert len(done.guards) == 3


def test_attention(check_program):
    def block(x, w_in, w_out):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, 4, width // 4).transpose(1, 2) for t in F.linear(x, w_in).split(width, -1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + F.linear(a.transpose(1, 2).reshape(batch, length, width), w_out)

    check_program(block, torch.randn(2, 5, 16), torch.randn(48, 16), torch.randn(16, 16))


def test_attention_written_out(check_program):
    def block(x, w):
        q, k, v = (x @ w).chunk(3, -1)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        mask = torch.ones(5, 5, dtype=torch.bool).tril()
        scores.masked_fill_(~mask, float("-inf"))
        return scores.softmax(-1) @ v

    check_program(block, torch.randn(2, 5, 8), torch.randn(8, 24))


def test_dropout(check_program):
    check_program(lambda x: F.dropout(x, 0.5, training=False) * 2, torch.randn(4, 4))
    check_program(lambda x: F.dropout(x, 0.5, training=True) * 2, torch.randn(4, 4))
    check_program(lambda x: F.dropout(x, 0.5, training=True, inplace=True), torch.randn(4, 4))


def test_lstm(check_program):
    function, state = lifted(nn.LSTM(4, 6))
    check_program(function, torch.randn(3, 2, 4), *state, rtol=1e-5, atol=1e-5)


def test_in_place_on_a_view_of_an_input(check_program):
    def program(x):
        x.t()[1].mul_(2)
        return x + 1

    done = check_program(program, torch.randn(3, 4))
    assert [w.input for w in done.signature.writes] == [0]


def test_index_put(check_program):
    def program(x, values):
        x[torch.tensor([0, 2])] = values
        x[x > 1] = 0.0
        y = x.clone()
        y[:, torch.tensor([1])] += 1
        return y

    check_program(program, torch.randn(3, 4), torch.randn(2, 4))


def test_slice_assignment(check_program):
    def program(x):
        y = torch.zeros(4, 6)
        y[1:3, ::2] = x
        y[-1] = 7
        y[:, 0:1] *= 3
        y[..., None][0] = 1
        return y

    check_program(program, torch.randn(2, 3))


def test_cache_of_keys_and_values(check_program):
    """A preallocated cache, written at a position and then read: the pattern of text generation."""

    def program(cache, new):
        cache[:, 2:3] = new
        return cache[:, :3].sum(1)

    done = check_program(program, torch.zeros(2, 8, 4), torch.randn(2, 1, 4))
    assert len(done.signature.writes) == 1


def test_outputs_that_alias(check_program):
    def program(x, y):
        z = x @ y
        a, b = z.split(2)
        return x.t(), z, a, b.t(), y, y.detach(), z.expand(2, *z.shape), (x + 1)[1:], None

    done = check_program(program, torch.randn(4, 3), torch.randn(3, 4))
    kinds = [type(spec) for spec in done.signature.outputs[:8]]
    assert kinds == [AliasOfInput, Fresh, AliasOfOutput, AliasOfOutput, InputItself, AliasOfInput, AliasOfOutput, Fresh]


def test_lists_of_tensors_are_updated_together(check_program):
    def program(a, b):
        torch._foreach_add_([a, b], 1.0)
        torch._foreach_mul_([a, b], [b.clone(), a.clone()])
        return a * b

    check_program(program, torch.randn(3), torch.randn(3))


def test_out_arguments(check_program):
    def program(x, y):
        torch.add(x.cos(), 1, out=y)
        values, indices = torch.empty(3), torch.empty(3, dtype=torch.int64)
        torch.max(x, 1, out=(values, indices))
        z = torch.empty(4, dtype=torch.float64)
        torch.arange(4, out=z)
        return values, indices, z

    check_program(program, torch.randn(3, 4), torch.empty(3, 4))


def test_optimizer_step(check_program):
    def step(p, g, m, v, n):
        """AdamW as torch.optim writes it, one tensor at a time."""
        n += 1
        p.mul_(1 - 1e-2 * 0.1)
        m.lerp_(g, 0.1)
        v.mul_(0.99).addcmul_(g, g, value=0.01)
        size = 1e-2 / (1 - 0.9**n)
        root = (v.sqrt() / (1 - 0.99**n).sqrt()).add_(1e-8)
        p.sub_(size * m / root)
        return p

    done = check_program(step, *(torch.randn(8).abs() for _ in range(4)), torch.tensor(1.0))
    assert [w.input for w in done.signature.writes] == [4, 0, 2, 3]


def test_random_fills(check_program):
    def program(x):
        x[0].normal_(1, 2)
        x[1].uniform_(-1, 1)
        x[2].bernoulli_(0.3)
        x[3].exponential_()
        y = torch.empty(4, dtype=torch.int64).random_(0, 10)
        return y, torch.randperm(5)

    check_program(program, torch.zeros(4, 5))


@pytest.mark.parametrize("p", [0.3, 0.5])
def test_bernoulli_draws_in_the_order_of_memory(check_program, p):
    def program(x, y):
        x.t().bernoulli_(p)
        y.permute(2, 0, 1)[:, 1:].bernoulli_(p)
        return F.dropout(y.transpose(0, 1), p), x.new_empty(8, 6)[::2, ::3].bernoulli_(p)

    check_program(program, torch.zeros(5, 7), torch.ones(3, 4, 5))


def test_normal_into_memory_with_gaps(check_program):
    check_program(lambda x: (x.t().normal_(), x[:2, ::2].normal_()), torch.zeros(8, 6))
    with pytest.raises(UnsupportedError, match="gaps"):
        check_program(lambda x: (x[:, 1:].normal_(),), torch.zeros(8, 6))


def test_complex_and_bit_views(check_program):
    def program(x):
        y = torch.view_as_real(x)
        y[..., 0].mul_(2)
        x.imag.add_(1)
        bits = x.abs().view(torch.int32)
        bits.bitwise_and_(-2)
        return bits.view(torch.float32), x.conj()

    check_program(program, torch.randn(3, dtype=torch.complex64))
