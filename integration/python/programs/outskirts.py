"""What few people write around tensors: transformed autograd functions, profilers, lazy modules, classes with hooks."""

from __future__ import annotations

import asyncio

import torch
from torch import nn, randn
from torch.func import functionalize, grad, jacrev, vmap

from integration.python.program import made, program


class Doubled(torch.autograd.Function):
    """Says one and a half times what it should, so that its gradient is seen to be used."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, tangent):
        (x,) = ctx.saved_tensors
        return 3 * tangent * x


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(x, factor):
        return x.sin() * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.factor = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, tangent):
        (x,) = ctx.saved_tensors
        return tangent * x.cos() * ctx.factor, None

    @staticmethod
    def vmap(info, in_dims, x, factor):
        return Scaled.apply(x, factor), in_dims[0]


@program("torch.func", lambda: (randn(4),))
def gradient_of_an_autograd_function(x):
    return grad(lambda t: Doubled.apply(t).sum())(x), vmap(grad(Doubled.apply))(x)


@program("torch.func", lambda: (randn(3, 4),))
def autograd_function_with_a_rule_for_vmap(x):
    return vmap(lambda row: Scaled.apply(row, 2.0) + 1)(x), jacrev(lambda t: Scaled.apply(t, 0.5))(x[0])


@program("torch.func", lambda: (randn(3),), breaks=("tracer.call", "tracer.call"))
def functionalized(x):
    def written(t):
        z = t.clone()
        z.add_(1)
        return z * t

    return functionalize(written)(x * 2)


@program("numbers that are tensors", lambda: (randn(3),))
def quotient_of_known_numbers_is_written(x):
    q = torch.div(7, 2, rounding_mode="floor")
    q.add_(1)
    return x * q, q, torch.div(7, 2), torch.floor_divide(-7, 2)


@program("numbers that are tensors", lambda: (randn(3),))
def quotient_is_made_where_eager_makes_it(x):
    with torch.device("meta"):
        q = torch.div(9, 2, rounding_mode="trunc")
        made = torch.zeros(q)
    return x + q.detach(), made.shape, q.device.type, made.device.type


@program("numbers that are tensors", lambda: (randn(3), 5))
def numbers_are_copied_into_a_tensor_of_numbers(x, n):
    kept = torch.tensor([1, 2])
    kept.copy_(torch.tensor([n, n + 1]))
    number = torch.div(7, 2)
    number.copy_(x.sum())
    return kept, number


@program("numbers that are tensors", lambda: (randn(4, 6),))
def dimensions_and_counts_are_tensors(x):
    d, n = torch.tensor(1), torch.tensor(2)
    return x.sum(d), x.softmax(dim=d), x.chunk(n, 1), nn.functional.pad(x, (n, 1)), torch.cat([x, x], d)


@program("profiler contexts", lambda: (randn(3),))
def region_has_a_name(x):
    with torch.profiler.record_function("scale"):
        y = x * 2
    with torch.autograd.profiler.record_function("shift"):
        return y + 1


@torch.profiler.record_function("decorated")
def named(x):
    return x.exp()


@program("profiler contexts", lambda: (randn(3),))
def function_has_a_name(x):
    return named(x) + 1


@program(
    "profiler contexts",
    lambda: (randn(3),),
    breaks=("tracer.call",) * 4,
    graphs=3,
)
def profiled(x):
    y = x * 3
    with torch.autograd.profiler.profile() as seen:
        z = y.relu() + 1
    return z * 2, len(seen.function_events) > 0


#: What the hooks of a lazy module do before its first call.
LAZY = (
    *("tracer.call", "tracer.call", "tracer.tensor_op", "tracer.tensor_input", "tracer.tensor_op"),
    *("tracer.tensor_input", "tracer.tensor_input", "tracer.tensor_input", "tracer.tensor_input"),
)


@program("lazy modules", lambda: (randn(2, 3),), breaks=LAZY, graphs=4)
def lazy_module_made_inside(x):
    torch.manual_seed(0)
    return nn.LazyLinear(4)(x).relu()


@made(
    "lazy modules",
    lambda: (randn(2, 3),),
    breaks=("tracer.tensor_input",) * 3,
    graphs=4,
    calls=3,
    recompiles=1,
)
def lazy_module_is_called_for_the_first_time():
    torch.manual_seed(0)
    layer = nn.LazyLinear(4)

    def run(x):
        return layer(x * 2).relu()

    return run


@program("classes that run code", lambda: (randn(3),), breaks=("tracer.call", "tracer.call"), calls=3, recompiles=2)
def metaclass_of_the_programs_own(x):
    class Registering(type):
        def __new__(meta, name, bases, names):
            return super().__new__(meta, name, bases, {**names, "scale": len(name)})

    class Layer(metaclass=Registering):
        def run(self, t):
            return t * self.scale

    return Layer().run(x + 1)


@program("classes that run code", lambda: (randn(3),), breaks=("tracer.call", "tracer.mutation"), calls=3, recompiles=4)
def subclasses_register_themselves(x):
    names = []

    class Base:
        def __init_subclass__(cls, factor=1, **others):
            super().__init_subclass__(**others)
            cls.factor = factor
            names.append(cls.__name__)

    class Layer(Base, factor=5):
        pass

    return x * Layer.factor, names


@program("classes that run code", lambda: (randn(3),), breaks=("tracer.call",), calls=3, recompiles=2)
def descriptor_is_told_its_name(x):
    class Length:
        def __set_name__(self, owner, name):
            self.name = name

        def __get__(self, instance, owner=None):
            return len(self.name)

    class Layer:
        width = Length()

    return x * Layer().width


async def doubled(x, factor):
    await asyncio.sleep(0)
    return x * factor


@program("async functions", lambda: (randn(3),), breaks=("tracer.call", "tracer.call"), graphs=2)
def event_loop_gathers(x):
    y = x + 1

    async def both():
        return await asyncio.gather(doubled(y, 2), doubled(y, 3))

    first, second = asyncio.run(both())
    return first + second


@program("async functions", lambda: (randn(3),), breaks=("tracer.call", "tracer.call"))
def asynchronous_generator_is_read(x):
    async def steps():
        for n in range(3):
            yield x * n

    async def total():
        return sum([step async for step in steps()])

    return asyncio.run(total()) + x


@torch.jit.script
def scripted(x: torch.Tensor) -> torch.Tensor:
    return x.relu() + 1


class Scripted(nn.Module):
    def forward(self, x):
        return x * 2 if x.dim() > 1 else x * 3


@program("graphs called", lambda: (randn(3),))
def function_of_torchscript(x):
    return scripted(x * 2)


@made("graphs called", lambda: (randn(3),), breaks=("tracer.call",), graphs=2)
def module_of_torchscript():
    layer = torch.jit.script(Scripted())

    def run(x):
        return layer(x + 1) * 2

    return run
