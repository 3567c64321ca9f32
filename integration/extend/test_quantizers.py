"""Quantized programs: torchao's flow on exported graphs and on our tracer's, products of int8 and of fp8."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn

import intarsia
import intarsia_tensorcapture
from intarsia_ir.plain import plain_module

pytestmark = pytest.mark.usefixtures("fresh")
RAISE = {"on_error": "raise"}


class Convolutional(nn.Module):
    """A convolution with a batch norm, which the flow folds, and a linear layer."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 4)

    def forward(self, x):
        return self.linear(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


def images():
    return torch.linspace(-1, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8).sin()


def rows():
    return torch.linspace(-1, 1, 40).reshape(5, 8)


def perceptron():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def own_quantizer():
    """Return a quantizer as a user writes it, which looks for operators; torchao's own looks for names of modules."""
    kit = pytest.importorskip("torchao.quantization.pt2e.quantizer")
    observer = pytest.importorskip("torchao.quantization.pt2e").MinMaxObserver.with_args(
        qscheme=torch.per_tensor_affine
    )
    spec = kit.QuantizationSpec(torch.int8, observer, quant_min=-128, quant_max=127, qscheme=torch.per_tensor_affine)
    wanted = (torch.ops.aten.linear.default, torch.ops.aten.conv2d.default)

    class Own(kit.Quantizer):
        def annotate(self, model):
            for node in model.graph.nodes:
                if node.target in wanted:
                    read = {node.args[0]: spec, node.args[1]: spec}
                    node.meta["quantization_annotation"] = kit.QuantizationAnnotation(read, spec, _annotated=True)
            return model

        def validate(self, model):
            return None

    return Own()


def prepared(module, x, *, trained=False, quantizer=None, **options):
    """Insert observers with torchao's quantizer for this machine, or another; and show them an example."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        flow = pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e")
        x86 = pytest.importorskip("torchao.quantization.pt2e.quantizer.x86_inductor_quantizer")
        if quantizer is None:
            quantizer = x86.X86InductorQuantizer()
            quantizer.set_global(x86.get_default_x86_inductor_quantization_config(is_qat=trained, **options))
        made = (flow.prepare_qat_pt2e if trained else flow.prepare_pt2e)(module, quantizer)
    made(x)
    return made


def converted(module):
    flow = pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = flow.convert_pt2e(module)
    assert sum("quantized_decomposed" in str(node.target) for node in made.graph.nodes) > 3
    return made


def by_export(module, x):
    return torch.export.export(module, (x,)).module()


def by_our_tracer(module, x):
    """Return the tracer's graph as a module of its own, exported by torch as any module is."""
    found = intarsia_tensorcapture.capture(module, (x,))
    named = {name.replace(".", "_"): value for name, value in module.state_dict(keep_vars=True).items()}
    held = [
        named[spec.name.removeprefix("self_")]
        for spec in found.signature.inputs
        if spec.name.removeprefix("self_") in named
    ]
    return by_export(plain_module(found.graph_module, found.signature, held), x)


def check_one_graph(module, x):
    with torch.no_grad():
        want, fast = module(x), intarsia.compile(module, fullgraph=True, options=RAISE)
        for _ in range(2):
            torch.testing.assert_close(fast(x), want)
    stats = intarsia.stats()
    assert (stats.graphs, stats.frames_eager, stats.fallbacks) == (1, 0, 0)


@pytest.mark.parametrize("options", [{}, {"is_dynamic": True}], ids=["static", "dynamic"])
def test_linear_layers(options):
    x = rows()
    check_one_graph(converted(prepared(by_export(perceptron().eval(), x), x, **options)), x)


def test_convolutions():
    torch.manual_seed(0)
    x = images()
    check_one_graph(converted(prepared(by_export(Convolutional().eval(), x), x)), x)


@pytest.mark.parametrize("source", [by_export, by_our_tracer])
@pytest.mark.parametrize("make, inputs", [(perceptron, rows), (Convolutional, images)])
def test_a_quantizer_of_ones_own(source, make, inputs):
    torch.manual_seed(0)
    x = inputs()
    check_one_graph(converted(prepared(source(make().eval(), x), x, quantizer=own_quantizer())), x)


def test_training_with_fake_quantization():
    x = rows()
    plain = prepared(by_export(perceptron().train(), x), x, trained=True)
    other = copy.deepcopy(plain)
    fast, found = intarsia.compile(other, options=RAISE), []
    for module, run in ((plain, plain), (other, fast)):
        for _ in range(3):
            module.zero_grad()
            loss = run(x).square().sum()
            loss.backward()
        kept = [value for name, value in module.state_dict().items() if value.is_floating_point()]
        found.append([loss.detach(), *kept, *[p.grad for p in module.parameters()]])
    torch.testing.assert_close(*found)
    assert (intarsia.stats().graphs, intarsia.stats().fallbacks) == (1, 0)


def int8_dynamic(x, weight, scale):
    """Rows are quantized by their largest number, as dynamic quantization does."""
    by = x.abs().amax(1, keepdim=True) / 127
    whole = torch.round(x / by).to(torch.int8)
    return torch._int_mm(whole, weight.t()).to(x.dtype) * by * scale


def int8_weight_only(x, weight, scale):
    return nn.functional.linear(x, weight.to(x.dtype)) * scale


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", [int8_dynamic, int8_weight_only])
def test_products_of_int8(function, dynamic):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randint(-127, 128, (24, 32), dtype=torch.int8, generator=generator)
    scale = torch.rand(24, generator=generator) / 100
    fast = intarsia.compile(function, fullgraph=True, dynamic=dynamic, options=RAISE)
    for n in (40, 48) if dynamic else (32,):
        x = torch.randn(n, 32, generator=generator)
        torch.testing.assert_close(fast(x, weight, scale), function(x, weight, scale))
    assert (intarsia.stats().graphs, intarsia.stats().fallbacks) == (1, 0)


def test_gradients_go_through_int8_weights():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randint(-127, 128, (24, 32), dtype=torch.int8, generator=generator)
    found = []
    for run in (int8_weight_only, intarsia.compile(int8_weight_only, fullgraph=True, options=RAISE)):
        x, scale = torch.ones(4, 32, requires_grad=True), torch.ones(24, requires_grad=True)
        run(x, weight, scale).square().mean().backward()
        found.append((x.grad, scale.grad))
    torch.testing.assert_close(*found)


def fp8_scaled(a, b, dtype, out_dtype, bias=None, by_row=False):
    """Both operands scaled to the range of fp8, and the product by torch's own kernel."""
    dims = 1 if by_row else (0, 1)
    largest = torch.finfo(dtype).max
    scales = [(x.abs().amax(dims, keepdim=True) / largest).float() for x in (a, b)]
    small = [(x / scale).to(dtype) for x, scale in zip((a, b), scales, strict=True)]
    one, other = (scales[0], scales[1].t()) if by_row else [scale.reshape(()) for scale in scales]
    product = torch._scaled_mm(small[0], small[1].t(), scale_a=one, scale_b=other, bias=bias, out_dtype=out_dtype)
    return product.float() * 2


@pytest.mark.parametrize("out_dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("by_row", [False, True])
def test_products_of_fp8(out_dtype, by_row):
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(n, 32, generator=generator) for n in (16, 48))
    program = lambda a, b: fp8_scaled(a, b, torch.float8_e4m3fn, out_dtype, by_row=by_row)
    try:
        want = program(a, b)
    except (RuntimeError, NotImplementedError):
        with pytest.raises((RuntimeError, NotImplementedError)):  # what eager refuses, it refuses
            intarsia.compile(program)(a, b)
        return
    fast = intarsia.compile(program, fullgraph=True, options=RAISE)
    for _ in range(2):
        torch.testing.assert_close(fast(a, b), want)
    assert (intarsia.stats().graphs, intarsia.stats().fallbacks) == (1, 0)
