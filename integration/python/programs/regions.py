"""Grad mode, autocast, custom autograd functions."""

from __future__ import annotations

import contextlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn, randn
from torch.nn.attention import SDPBackend, sdpa_kernel

from integration.python.program import made, program


@program("grad mode", lambda: (randn(3),))
def no_grad_block(x):
    before = torch.is_grad_enabled()
    with torch.no_grad():
        y = x * 2
        inside = torch.is_grad_enabled()
    return y + 1, before, inside


@torch.no_grad()
def _frozen(x):
    return x.exp(), torch.is_grad_enabled()


@program("grad mode", lambda: (randn(3),))
def no_grad_decorator(x):
    with torch.enable_grad():
        y, inside = _frozen(x)
        outside = torch.is_grad_enabled()
    return y * 2, inside, outside


@program("grad mode", lambda: (randn(3),))
def set_grad_enabled_both_ways(x):
    states = []
    for mode in (True, False):
        with torch.set_grad_enabled(mode):
            states.append(torch.is_grad_enabled())
            x = x + 1
    return x.detach(), states, torch.is_grad_enabled()


@program("inference mode", lambda: (randn(3),))
def inference_mode_block(x):
    with torch.inference_mode():
        y = x * 2
        inside = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
        seen = y.is_inference(), x.is_inference()
    return y, y[1:], x + 1, inside, seen, torch.is_inference_mode_enabled()


@made("inference mode", lambda: (randn(2, 3),))
def inference_mode_decorates_a_forward():
    class Scorer(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 4)

        @torch.inference_mode()
        def forward(self, x):
            return self.layer(x).softmax(-1)

    torch.manual_seed(1)
    return Scorer().eval()


@torch.inference_mode
def _doubled(x):
    return x + x


@program("inference mode", lambda: (randn(3),))
def clone_of_an_inference_tensor(x):
    with torch.enable_grad():
        y = _doubled(x).clone()
        y.add_(1)
    with torch.inference_mode(False):
        z = x * 3
    return y, z


@program("inference mode", lambda: (randn(3),))
def an_inference_tensor_is_written_outside(x):
    with torch.inference_mode():
        y = x * 2
    try:
        y.add_(1)
    except RuntimeError as error:
        return y, str(error)


# what the mode was before it is left, only the entered object knows
@program("inference mode", lambda: (randn(3),), graphs=2, breaks=("tracer.output", "tracer.tensor_op"))
def print_in_inference_mode(x):
    with torch.inference_mode():
        y = x * 2
        print(y.is_inference(), torch.is_grad_enabled())
        z = y + 1
    return z, torch.is_inference_mode_enabled(), torch.is_grad_enabled()


@program("autocast", lambda: (randn(3, 4), randn(4, 5)))
def matmul_under_autocast(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ w
        active = torch.is_autocast_enabled("cpu")
    return y, y.dtype, active, torch.is_autocast_enabled("cpu")


@program("autocast", lambda: (randn(3, 3),))
def autocast_turned_off_inside(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x
        with torch.autocast("cpu", enabled=False):
            z = y.float() @ x
    return y, z


@torch.autocast("cpu", dtype=torch.bfloat16)
def _low_precision(x):
    return torch.mm(x, x)


class Swish(torch.autograd.Function):
    """x * sigmoid(x), which keeps its input alone."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s + x * s * (1 - s))


class Rounded(torch.autograd.Function):
    """Straight-through rounding with a step that isn't a tensor."""

    @staticmethod
    def forward(ctx, x, step):
        ctx.step = step
        return torch.round(x / step) * step

    @staticmethod
    def backward(ctx, grad):
        return grad, None


@program("autograd.Function", lambda: (randn(3),))
def apply_swish(x):
    return Swish.apply(x) + 1


@program("autograd.Function", lambda: (randn(3), 0.5))
def straight_through(x, step):
    quantize = Rounded.apply
    return quantize(x * 2, step), Rounded.apply(x, 1.0)


@program("autocast", lambda: (randn(3, 3),))
def autocast_decorator(x):
    return _low_precision(x).float() + x @ x


@program("settings", lambda: (randn(1, 2, 4, 8),))
def attention_by_a_chosen_kernel(q):
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION]):
        inside = torch.backends.cuda.flash_sdp_enabled()
        y = F.scaled_dot_product_attention(q, q, q)
    return y, inside, torch.backends.cuda.flash_sdp_enabled()


@sdpa_kernel(SDPBackend.FLASH_ATTENTION)
def _flash(q):
    return F.scaled_dot_product_attention(q, q, q, is_causal=True), torch.backends.cuda.math_sdp_enabled()


@program("settings", lambda: (randn(1, 2, 4, 8),))
def sdpa_kernel_decorates(q):
    return _flash(q * 2), torch.backends.cuda.math_sdp_enabled()


@contextlib.contextmanager
def _default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield before
    finally:
        torch.set_default_dtype(before)


@program("settings", lambda: (randn(3),))
def constants_in_double_precision(x):
    with _default_dtype(torch.float64) as before:
        grid = torch.linspace(0, 1, 3)
        made = torch.tensor(1.5), torch.tensor([1j]), torch.arange(3), torch.rand(2), torch.full((2,), True)
    return x * grid, made, torch.ones(2), before, torch.get_default_dtype()


@program("settings", lambda: (randn(3),), graphs=2, breaks=("tracer.output",))
def print_under_another_dtype(x):
    torch.set_default_dtype(torch.float64)
    y = torch.ones(3)
    print(torch.get_default_dtype())
    z = torch.zeros(3) + y
    torch.set_default_dtype(torch.float32)
    return x + y, z, torch.ones(1)


@program("questions to torch", lambda: (randn(3),))
def average_over_processes(x):
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        dist.all_reduce(x)
        x = x / dist.get_world_size()
    return x + 1, dist.is_nccl_available(), dist.is_gloo_available(), dist.is_torchelastic_launched()


@program("questions to torch", lambda: (randn(3),))
def which_backends_are_on(x):
    flags = torch.backends.cudnn.enabled, torch.backends.cudnn.deterministic, torch.backends.mkldnn.enabled
    return x * 2, flags, torch.get_float32_matmul_precision(), torch.is_anomaly_enabled()


@torch.profiler.record_function("labelled")
def _labelled(x):
    return x + 1


@program("questions to torch", lambda: (randn(3),))
def labels_for_the_profiler(x):
    with torch.autograd.profiler.record_function("step") as label:
        y = _labelled(x)
    return y * 2, label is not None
