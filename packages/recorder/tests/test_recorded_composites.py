"""Composites that look at data, or at memory: their checks are kept, and recurrent networks on a GPU stay whole."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from intarsia_ir import aten, meta
from intarsia_recorder import record


def targets(recorded):
    return [str(n.target) for n in recorded.graph_module.graph.nodes if n.op == "call_function"]


@pytest.mark.parametrize("function", [torch.nn.functional.one_hot, torch.ops.aten.one_hot.default])
def test_one_hot_keeps_its_check(function):
    recorded = record(lambda x: function(x, 3), (torch.tensor([1, 2]),))
    assert "aten._assert_async.msg" in targets(recorded)
    assert aten.interpret(recorded.graph_module, torch.tensor([0, 2]))[0].tolist() == [[1, 0, 0], [0, 0, 1]]
    with pytest.raises(RuntimeError, match="out of range"):
        aten.interpret(recorded.graph_module, torch.tensor([0, 3]))


def test_a_check_of_known_data_is_for_the_running_program():
    recorded = record(lambda: torch.nn.functional.one_hot(torch.tensor([5]), 3), ())
    with pytest.raises(RuntimeError, match="out of range"):
        aten.interpret(recorded.graph_module)


@pytest.mark.parametrize("ceil_mode", [True, False])
@pytest.mark.parametrize("graded", [True, False])
@pytest.mark.parametrize("strides", [(9, 3, 1), (9, 1, 3), (1, 9, 18)])
def test_pooled_rows_are_row_major_without_gradients(strides, graded, ceil_mode):
    x = torch.empty_strided((2, 2, 5), strides).normal_().requires_grad_(graded)
    pool = torch.nn.functional.max_pool1d
    recorded = record(lambda y: pool(y, 2, ceil_mode=ceil_mode), (x,))
    (made,) = aten.interpret(recorded.graph_module, x)
    expected = pool(x, 2, ceil_mode=ceil_mode)
    assert torch.equal(made, expected) and made.stride() == expected.stride()


def on_a_gpu(function, *inputs):
    """Record a function as on a GPU, without gradients."""
    mode = FakeTensorMode()
    shells = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta") for x in inputs]
    with torch.no_grad():
        return record(function, [FakeTensor(mode, shell, torch.device("cuda", 0)) for shell in shells])


def check_whole(function, op, *inputs):
    """Compare a recording as on a GPU with the function on the CPU: values, and the strides that were foretold."""
    recorded = on_a_gpu(function, *inputs)
    (node,) = [n for n in recorded.graph_module.graph.nodes if str(n.target) == op]
    with torch.no_grad():
        expected = function(*inputs)
    torch.testing.assert_close(aten.interpret(recorded.graph_module, *inputs), expected, check_stride=True)
    assert [v.stride() for v in meta.value(node)] == [v.stride() for v in expected]


FORMS = {
    "plain": {},
    "deep": {"num_layers": 2, "bidirectional": True, "batch_first": True},
    "no bias": {"bias": False},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["gru", "lstm", "rnn_tanh"])
def test_a_recurrent_network_on_a_gpu_is_one_op(name, form):
    module = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn_tanh": nn.RNN}[name](4, 3, **FORMS[form])
    n = module.num_layers * (2 if module.bidirectional else 1)
    options = (module.bias, module.num_layers, 0.0, False, module.bidirectional, module.batch_first)

    def function(x, h, *rest):
        if name == "lstm":
            c, *weights = rest
            return torch.lstm(x, [h, c], weights, *options)
        return getattr(torch, name)(x, h, [*rest], *options)

    state = torch.randn(n, 5 if module.batch_first else 2, 3)
    states = (state, state + 1) if name == "lstm" else (state,)
    check_whole(
        function, f"aten.{name}.input", torch.randn(5, 2, 4), *states, *[p.detach() for p in module.parameters()]
    )


def test_a_projection_and_a_packed_batch():
    module = nn.LSTM(4, 3, proj_size=2)
    weights, h, c = [p.detach() for p in module.parameters()], torch.randn(1, 2, 2), torch.randn(1, 2, 3)
    sizes = torch.tensor([2, 2, 1])

    def padded(x, h, c, *weights):
        return torch.lstm(x, [h, c], weights, True, 1, 0.0, False, False, False)

    def packed(x, h, c, *weights):
        return torch.lstm(x, sizes, [h, c], weights, True, 1, 0.0, False, False)

    check_whole(padded, "aten.lstm.input", torch.randn(3, 2, 4), h, c, *weights)
    check_whole(packed, "aten.lstm.data", torch.randn(5, 4), h, c, *weights)


def test_a_recurrent_network_on_the_cpu_comes_apart():
    module = nn.GRU(4, 3).eval()
    with torch.no_grad():
        recorded = record(lambda x: module(x)[0], (torch.randn(5, 2, 4),))
    assert "aten.gru.input" not in targets(recorded)


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (5, 2), (9, 2), (3, 3, 3), (2, 2, 2, 2), (0, 3), (3, 0), (4, 1)])
def test_a_diagonal_is_filled_through_views(shape, wrap):
    for x in (torch.randn(shape), torch.randn((shape[0] + 1, *shape[1:]))[1:], torch.randn(shape[::-1]).mT):
        if x.shape == shape and (x.is_contiguous() or not wrap):
            expected = x.clone().fill_diagonal_(2, wrap=wrap)
            recorded = record(lambda y: y.fill_diagonal_(2, wrap), (x.clone(),))
            assert not any("as_strided" in target for target in targets(recorded))
            aten.interpret(recorded.graph_module, x)
            assert torch.equal(x, expected)


def test_what_eager_does_not_fill_raises():
    for x in (torch.randn(3), torch.randn(2, 3, 3)):
        with pytest.raises(RuntimeError, match="dimension"):
            record(lambda y: y.fill_diagonal_(2), (x,))
