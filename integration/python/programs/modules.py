"""Modules: hooks, ModuleList, ModuleDict, parameters, buffers, train and eval."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn, randn

from integration.python.program import made


class MLP(nn.Module):
    """Two layers with a residual."""

    def __init__(self, width=4, act=F.gelu):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.act = act

    def forward(self, x):
        return x + self.down(self.act(self.up(x)))


@made("module hooks", lambda: (randn(2, 4),))
def hooks_of_a_submodule():
    model = MLP().eval()
    model.up.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    model.down.register_forward_hook(lambda module, args, kwargs, output: output + args[0].sum(), with_kwargs=True)
    model.down.register_forward_hook(lambda module, args, output: None, prepend=True)

    def f(x):
        return model(x) * 2

    return f


@made("module hooks", lambda: (randn(2, 4),), calls=4, recompiles=1)
def hook_that_collects_features():
    model, features = MLP().eval(), {}

    def keep(name):
        def hook(module, args, output):
            features[name] = output

        return hook

    for name, child in model.named_children():
        child.register_forward_hook(keep(name))

    def f(x):
        features.clear()
        return model(x), dict(features)

    return f


class Stack(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.layers = nn.ModuleList(MLP() for _ in range(depth))
        self.skip = 1

    def forward(self, x, keep=False):
        hidden = []
        for i, layer in enumerate(self.layers):
            if i == self.skip:
                continue
            x = layer(x)
            hidden.append(x)
        last = self.layers[-1]
        return (last(x), hidden) if keep else (last(x), len(self.layers), [type(m).__name__ for m in self.layers[:2]])


@made("ModuleList", lambda: (randn(2, 4),))
def loop_over_layers():
    return Stack().eval()


@made("ModuleList", lambda: (randn(2, 4), True))
def collect_hidden_states():
    return Stack(2).eval()


@made("ModuleList", lambda: (randn(2, 4),))
def sequential_and_slices():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).eval()

    def f(x):
        head, tail = model[:2], model[2]
        for layer in head:
            x = layer(x)
        return tail(x), len(model), model[-1] is tail

    return f


class Heads(nn.Module):
    """One head per task."""

    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 3)})
        self.scales = nn.ParameterDict({"a": nn.Parameter(torch.ones(2)), "b": nn.Parameter(torch.ones(3))})

    def forward(self, x, task=None):
        if task is not None and task in self.heads:
            return self.heads[task](x) * self.scales[task]
        return {name: head(x) * self.scales[name] for name, head in self.heads.items()}


@made("ModuleDict", lambda: (randn(2, 4), "b"))
def head_by_task():
    return Heads().eval()


@made("ModuleDict", lambda: (randn(2, 4),))
def all_heads():
    return Heads().eval()


class Tied(nn.Module):
    """An embedding whose table is the output layer too; a buffer that isn't saved."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("positions", torch.randn(5, 4), persistent=False)
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, ids):
        return self.head(self.embed(ids) * self.gain + self.positions[: ids.shape[-1]])


@made("parameters lifted", lambda: (torch.randint(0, 7, (2, 3)),))
def tied_weights():
    return Tied().eval()


@made("parameters lifted", lambda: (randn(2, 4),))
def weights_change_between_calls():
    model = MLP().eval()

    def f(x):
        y = model(x)
        for parameter in model.parameters():
            parameter.mul_(0.5)
        return y

    return f


@made("parameters lifted", lambda: (randn(2, 4),))
def norm_of_all_parameters():
    model = MLP().eval()

    def f(x):
        total = sum(p.pow(2).sum() for name, p in model.named_parameters() if not name.endswith("bias"))
        return model(x) / total.sqrt(), [name for name, _ in model.named_parameters()]

    return f


@made("parameters lifted", lambda: (randn(2, 4),))
def parameter_list():
    weights = nn.ParameterList([nn.Parameter(torch.randn(4, 4)) for _ in range(2)])

    def f(x):
        for weight in weights:
            x = F.linear(x, weight)
        return x

    return f


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        x = self.norm(x)
        if self.training:
            x = x + 1
        return self.drop(x)


@made("train and eval", lambda: (randn(6, 4),))
def evaluation_mode():
    return Noisy().eval()


@made("train and eval", lambda: (randn(6, 4),))
def training_mode():
    return Noisy().train()


@made("train and eval", lambda: (randn(6, 4),))
def mode_switched_inside():
    model = Noisy().train()

    def f(x):
        model.eval()
        quiet = model(x)
        model.train()
        return quiet, model(x), model.norm.training

    return f


class Average(nn.Module):
    """A moving average in a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.momentum = 0.1

    def forward(self, x):
        if self.training:
            self.mean.lerp_(x.mean(0), self.momentum)
        return x - self.mean


@made("train and eval", lambda: (randn(6, 4),))
def moving_average_buffer():
    return Average().train()


class Attention(nn.Module):
    def __init__(self, width=8, heads=2):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, cache=None):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        if cache is not None:
            if "k" in cache:
                k, v = torch.cat([cache["k"], k], 2), torch.cat([cache["v"], v], 2)
            cache["k"], cache["v"] = k, v
        y = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        return self.out(y.transpose(1, 2).reshape(b, n, d))


@made("functional models", lambda: (randn(2, 3, 8), {}))
def attention_fills_a_cache():
    return Attention().eval()


@made("functional models", lambda: (randn(2, 1, 8), {"k": randn(2, 2, 3, 4), "v": randn(2, 2, 3, 4)}))
def attention_grows_a_cache():
    return Attention().eval()


@made("functional models", lambda: (randn(1, 3, 8, 8),))
def small_convolutional_network():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 5)
    ).eval()


@made("module hooks", lambda: (randn(2, 4),))
def hook_that_changes_the_output():
    model = MLP().eval()
    model.up.register_forward_hook(lambda module, args, output: output * 2)
    model.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    return model


# not yet as it should be: the handle isn't modelled, and its number, new each time, is guarded
@made(
    "module hooks",
    lambda: (randn(2, 4),),
    graphs=2,
    breaks=("tracer.call", "tracer.call"),
    calls=3,
    recompiles=2,
)
def hook_removed_inside():
    model = MLP().eval()

    def f(x):
        handle = model.register_forward_hook(lambda m, a, out: out + 100)
        try:
            first = model(x)
        finally:
            handle.remove()
        return first - model(x)

    return f


@made("functional models", lambda: (randn(2, 3),))
def graph_module_inside():
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.weight = nn.BatchNorm1d(3), nn.Parameter(torch.ones(3))

        def forward(self, x, scale=2.0):
            return self.norm(x * self.weight) * scale

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.fx.symbolic_trace(Inner())
            self.inner.register_forward_hook(lambda module, args, result: result + 1)

        def forward(self, x):
            return self.inner(x) + self.inner(x, scale=3.0)

    return Outer()


@made("functional models", lambda: (randn(2, 3),))
def exported_module_inside():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.inner = torch.export.export(nn.Linear(3, 3), (randn(2, 3),)).module()

        def forward(self, x):
            return torch.jit._unwrap_optional(self.inner(x)).relu()

    return Outer()


@made("parameters lifted", lambda: (randn(2, 3),))
def modules_made_in_forward():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            x = nn.LayerNorm(3)(self.linear(x))
            return nn.BatchNorm1d(3)(x) + nn.Linear(3, 3)(nn.ReLU()(x)), len(list(nn.PReLU().parameters()))

    return Net()


@made("parameters lifted", lambda: (randn(3),), calls=3, recompiles=1)
def parameter_made_at_the_first_call():
    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = None

        def forward(self, x):
            x = x * 2
            if self.gate is None:
                self.gate = nn.Parameter(torch.ones(3))
            return x * self.gate

    return Gate()
