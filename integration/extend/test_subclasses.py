"""Wrapper subclasses: one graph on the tensors inside, with eager's results and their classes."""

from __future__ import annotations

import pytest
import torch

import intarsia
from integration.extend.subclasses import PROGRAMS, Gated, flat

pytestmark = pytest.mark.usefixtures("fresh")
RAISE = {"on_error": "raise"}


def check_one_graph(function, inputs, n_graphs=1, **options):
    want = flat(function(*inputs))
    fast = intarsia.compile(function, fullgraph=True, options=RAISE, **options)
    for _ in range(2):
        torch.testing.assert_close(flat(fast(*inputs)), want, rtol=1e-5, atol=1e-5)
    stats = intarsia.stats()
    assert (stats.graphs, stats.frames_eager, stats.fallbacks) == (n_graphs, 0, 0)
    assert stats.frames_compiled > 0 and stats.kernels_generated > 0
    return fast


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_in_one_graph(name, dynamic):
    program = PROGRAMS[name]
    check_one_graph(program.make(), program.inputs(), dynamic=dynamic)


@pytest.mark.peer
@pytest.mark.parametrize("name", [name for name, program in PROGRAMS.items() if program.peer])
def test_where_torch_compile_takes_them(name):
    program = PROGRAMS[name]
    function, inputs = program.make(), program.inputs()
    got = torch.compile(function, backend="aot_eager", fullgraph=True)(*inputs)
    torch.testing.assert_close(flat(got), flat(function(*inputs)))
    torch._dynamo.reset()


def test_another_weight_is_another_capture_or_none():
    program = PROGRAMS["parameter"]
    layer, (x,) = program.make(), program.inputs()
    fast = check_one_graph(layer, [x])
    with torch.no_grad():
        layer.linear.weight.first.add_(1)
    torch.testing.assert_close(flat(fast(x)), flat(layer(x)))
    assert intarsia.stats().recompiles == 0, "values of the inner tensors are inputs"
    layer.linear.weight = torch.nn.Parameter(torch.ones(3, 4), requires_grad=False)
    torch.testing.assert_close(fast(x), layer(x))
    assert intarsia.stats().recompiles == 1


# ---- models that torchao has quantized


def quantized(config, dtype=torch.float32):
    quantization = pytest.importorskip("torchao.quantization")
    torch.manual_seed(0)
    model = Gated().to(dtype).eval()
    quantization.quantize_(model, getattr(quantization, config)())
    return model


CONFIGS = ["Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig", "Float8WeightOnlyConfig"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("config", CONFIGS)
def test_a_quantized_model(config, grad, dtype):
    model, x = quantized(config, dtype), torch.randn(2, 5, 64, dtype=dtype)
    with torch.set_grad_enabled(grad):
        want = model(x)
        fast = intarsia.compile(model, fullgraph=True, options=RAISE)
        for _ in range(2):
            got = fast(x)
            torch.testing.assert_close(got, want)
    stats = intarsia.stats()
    assert (stats.graphs, stats.frames_eager, stats.fallbacks) == (1, 0, 0) and stats.frames_compiled > 0


@pytest.mark.parametrize("config", CONFIGS)
def test_a_quantized_model_at_other_sizes(config):
    model = quantized(config)
    fast = intarsia.compile(model, fullgraph=True, dynamic=True, options=RAISE)
    for n in (3, 5, 9):
        x = torch.randn(n, 64)
        torch.testing.assert_close(fast(x), model(x))
    assert intarsia.stats().recompiles == 0 and intarsia.stats().graphs == 1


@pytest.mark.parametrize("config", CONFIGS[:1])
def test_gradients_go_through_a_quantized_model(config):
    model, x = quantized(config), torch.randn(3, 64, requires_grad=True)
    model.down.bias.requires_grad_()
    asked = [x, model.down.bias]
    want = torch.autograd.grad(model(x).square().sum(), asked)
    fast = intarsia.compile(model, fullgraph=True, options=RAISE)
    got = torch.autograd.grad(fast(x).square().sum(), asked)
    torch.testing.assert_close(got, want)
    assert (intarsia.stats().graphs, intarsia.stats().fallbacks) == (1, 0)


def llama_block():
    pytest.importorskip("transformers")
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(**sizes, num_hidden_layers=1, vocab_size=10)
    config._attn_implementation = "sdpa"
    x = torch.randn(2, 8, 64)
    angles = LlamaRotaryEmbedding(config)(x, torch.arange(8)[None])
    return LlamaDecoderLayer(config, 0).eval(), x, {"position_embeddings": angles}


@pytest.mark.parametrize("bits", ["int8", "int4"])
def test_a_quantized_llama_block(bits):
    quantization = pytest.importorskip("torchao.quantization")
    block, x, keywords = llama_block()
    grouped = {"weight_dtype": torch.int4, "granularity": quantization.PerGroup(32)}
    one, other = quantization.Int8WeightOnlyConfig, quantization.IntxWeightOnlyConfig
    quantization.quantize_(block, one() if bits == "int8" else other(**grouped))
    with torch.no_grad():
        fast = intarsia.compile(block, fullgraph=True, options=RAISE)
        for _ in range(2):
            torch.testing.assert_close(fast(x, **keywords), block(x, **keywords))
    stats = intarsia.stats()
    assert (stats.graphs, stats.frames_compiled, stats.frames_eager, stats.fallbacks) == (1, 1, 0, 0)
