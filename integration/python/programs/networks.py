"""What models do beside layers: parameters made, graphs called, custom operators, generators, lists that grow."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn, randn

from integration.python.program import made, program


@made("parameters made", lambda: (randn(2, 3),), calls=3, recompiles=1)
def parameter_made_in_forward():
    class Lazy(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = None

        def forward(self, x):
            if self.scale is None:
                self.scale = nn.Parameter(torch.ones(x.shape[-1]))
            return x * self.scale

    return Lazy()


@program("parameters made", lambda: (randn(2, 3),))
def layer_made_and_initialised(x):
    layer = nn.Linear(3, 2)
    nn.init.constant_(layer.weight, 0.5)
    nn.init.zeros_(layer.bias)
    return layer(x).detach()


@made(
    "parameters made",
    lambda: (randn(2, 3),),
    graphs=3,
    breaks=(
        "tracer.tensor_input",
        "tracer.tensor_input",
        "tracer.tensor_input",
    ),
    calls=3,
    recompiles=1,
)
def lazy_linear():
    return nn.Sequential(nn.LazyLinear(4), nn.ReLU())


@made("parameters made", lambda: (randn(2, 3),))
def spectral_normed():
    torch.manual_seed(1)
    return nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2)).eval()


@made("parameters made", lambda: (randn(2, 3),))
def weight_normed():
    torch.manual_seed(1)
    return nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))


@made("buffers", lambda: (randn(2, 3),), calls=3, recompiles=1)
def buffer_moved_in_forward():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.c = torch.arange(3)

        def forward(self, x):
            self.c = self.c.to(x.dtype)
            return x * self.c

    return Net()


@made("buffers", lambda: (randn(2, 3),), calls=3, recompiles=1)
def table_that_grows():
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.zeros(0), persistent=False)

        def forward(self, x):
            if self.table.shape[0] < x.shape[-1]:
                self.table = torch.arange(x.shape[-1]).float()
            return x + self.table[: x.shape[-1]]

    return Positions()


@made("buffers", lambda: (randn(2, 3),))
def data_is_doubled():
    layer = nn.Linear(3, 2)

    def call(x):
        y = x.clone()
        y.data = y.data * 2
        return layer(y).detach()

    return call


@made("graphs called", lambda: (randn(2, 3),))
def traced_inside_a_module():
    inner = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.ReLU()))

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x) + 1

    return Outer()


@made("graphs called", lambda: (randn(2, 3),), breaks=("tracer.call",))
def scripted_inside_a_function():
    script = torch.jit.script(nn.Linear(3, 2))
    return lambda x: script(x) * 2


@made("graphs called", lambda: (randn(2, 3),))
def exported_inside_a_function():
    program = torch.export.export(nn.Sequential(nn.Linear(3, 2), nn.Tanh()), (torch.ones(2, 3),)).module()
    return lambda x: program(x) + 1


@torch.library.custom_op("python_corpus::shifted", mutates_args=())
def shifted(x: torch.Tensor, by: float) -> torch.Tensor:
    """Add a number."""
    return x + by


@shifted.register_fake
def _(x, by):
    return torch.empty_like(x)


@torch.library.custom_op("python_corpus::scaled_", mutates_args=("x",))
def scaled_(x: torch.Tensor, by: float) -> None:
    """Scale in place."""
    x.mul_(by)


@program("custom operators", lambda: (randn(3),))
def custom_operator(x):
    return shifted(x, 2.0) * 2, torch.ops.python_corpus.shifted(x, 1.0)


@program("custom operators", lambda: (randn(3),))
def custom_operator_that_writes(x):
    y = x * 1
    scaled_(y, 3.0)
    return y + 1


@program("torch.Generator", lambda: (randn(3),))
def generator_made_inside(x):
    g = torch.Generator().manual_seed(3)
    return x + torch.randn(3, generator=g), torch.randint(0, 9, (2,), generator=g)


@made("torch.Generator", lambda: (randn(3),))
def generator_of_the_caller():
    g = torch.Generator().manual_seed(3)
    return lambda x: x + torch.rand(3, generator=g)


@program("torch.Generator", lambda: (torch.ones(2, 3), torch.Generator().manual_seed(7)))
def weights_by_a_generator(x, g):
    w = torch.empty(4, 3)
    nn.init.kaiming_uniform_(w, generator=g)
    noise = torch.randn(x.shape, generator=g, dtype=x.dtype)
    return (x + 0.1 * noise) @ w.t(), torch.randperm(5, generator=g)


@program("torch.Generator", lambda: (torch.ones(2, 3),))
def seeded_inside(x):
    torch.manual_seed(x.shape[-1])
    return F.dropout(x, 0.5), torch.rand(2)


@program("torch.Generator", lambda: (torch.ones(2, 3),), graphs=2, breaks=("tracer.call",))
def seeded_after_a_draw(x):
    y = F.dropout(x, 0.5)
    torch.manual_seed(3)
    return y, torch.rand(2)


@program("parameters made", lambda: (randn(2, 3),))
def module_made_and_returned(x):
    layer = nn.Linear(3, 2)
    return layer(x), layer.weight, layer.bias


@program("parameters made", lambda: (randn(2, 3),))
def forces_at_given_positions(x):
    x.requires_grad_()
    energy = (x.square().sum(-1) + 1).rsqrt().sum()
    (gradient,) = torch.autograd.grad(energy, x, create_graph=True)
    return energy, -gradient


@made("parameters made", lambda: (randn(2, 3),), calls=3, recompiles=1)
def frozen_after_the_first_call():
    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            y = self.layer(x)
            for p in self.layer.parameters():
                p.requires_grad_(False)
            return y, self.layer(x)

    return Head()


@program("questions to torch", lambda: (randn(3),))
def asks_for_processes(x):
    world = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    return x / world, torch.cuda.is_available() and x.is_cuda


@program("settings", lambda: (randn(3),))
def default_device_is_set(x):
    with torch.device("cpu"):
        y = torch.ones(3)
    return x + y, torch.get_default_dtype(), torch.is_grad_enabled()


@program("settings", lambda: (randn(3),))
def default_device_is_changed_and_put_back(x):
    before = torch.get_default_device()
    torch.set_default_device("cpu")
    y = torch.ones(3) * x
    during = torch.get_default_device()
    torch.set_default_device(None)
    return y + torch.zeros(3), before, during, torch.get_default_device()


@program("settings", lambda: (randn(3),))
def shapes_are_asked_of_a_module_without_memory(x):
    with torch.device("meta"):
        layer = torch.nn.Linear(3, 4)
        out = layer(torch.empty(5, 3)).shape
    return x * out[1], out, layer.weight.device.type


@made("settings", lambda: (randn(3),))
def called_under_a_device():
    def inner(x):
        return x + torch.arange(3.0), torch.get_default_device()

    def outer(x):
        with torch.device("cpu"):
            return inner(x)

    return outer


@program("settings", lambda: (randn(2, 2, 4, 8),))
def kernel_of_attention(x):
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return F.scaled_dot_product_attention(x, x, x)


@program("in-place ops", lambda: (torch.arange(6.0),))
def overlapping_views(x):
    a, b = x[1:], x[:-1]
    a += 1
    return a + b


@program("tags", lambda: (randn(3),))
def attribute_of_a_tensor(x):
    y = x * 2
    y.tag = "hidden"
    y._index = 3
    return y + y._index, y.tag, hasattr(x, "tag")


@program("tags", lambda: (randn(3),), breaks=("tracer.tensor_op",))
def tensor_asked_for_everything(x):
    y = x.view(3, 1)
    return y * 2, y.dim(), y.stride(), y.is_contiguous(), y.element_size(), y.numel(), y._base is not None, x.is_leaf


@made("lists that grow", lambda: (randn(3),), calls=5)
def features_in_a_list():
    seen = []

    def call(x):
        y = x * 2
        seen.append(y)
        return y + 1

    return call


@made("lists that grow", lambda: (randn(2, 3),), calls=5)
def hook_that_keeps_results():
    layer, seen = nn.Linear(3, 2), []
    layer.register_forward_hook(lambda module, args, result: seen.append(result.detach()))

    return lambda x: layer(x).detach()


@made("lists that grow", lambda: (randn(3),), calls=5)
def losses_of_all_steps():
    class Meter(nn.Module):
        def __init__(self):
            super().__init__()
            self.losses = []

        def forward(self, x):
            self.losses.append(x.square().mean().item())
            return x * 2

    return Meter()


@program("recurrent layers", lambda: (randn(2, 3, 4),))
def recurrent_cell_by_hand(x):
    h = torch.zeros(2, 4)
    outputs = []
    for t in range(x.shape[1]):
        h = torch.tanh(x[:, t] + h)
        outputs.append(h)
    return torch.stack(outputs, 1), h


@made("recurrent layers", lambda: (randn(2, 3, 4),))
def library_lstm():
    torch.manual_seed(2)
    lstm = nn.LSTM(4, 5, batch_first=True)

    def call(x):
        y, (h, c) = lstm(x)
        return y.detach(), h.detach(), c.detach()

    return call


@made("optimizers", lambda: (randn(4, 3),), graphs=2, breaks=("tracer.tensor_op",), calls=3, recompiles=1)
def clipped_gradients():
    layer = nn.Linear(3, 1)

    def call(x):
        with torch.enable_grad():
            layer.zero_grad()
            layer(x).sum().backward()
        total = nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        return total, layer.weight.grad.clone()

    return call


@made("optimizers", lambda: (randn(4, 3),))
def weights_averaged():
    one, two = nn.Linear(3, 2), nn.Linear(3, 2)

    def call(x):
        with torch.no_grad():
            for a, b in zip(one.parameters(), two.parameters()):
                a.lerp_(b, 0.1)
        return one(x).detach()

    return call


@made(
    "optimizers",
    lambda: (randn(4, 3),),
    graphs=3,
    breaks=(
        "tracer.disabled",
        "tracer.tensor_op",
    ),
    calls=3,
    recompiles=1,
)
def adam_step():
    layer = nn.Linear(3, 1)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.01)

    def call(x):
        with torch.enable_grad():
            optimizer.zero_grad(set_to_none=True)
            error = F.mse_loss(layer(x), x[:, :1])
            error.backward()
        optimizer.step()
        return error.detach()

    return call
