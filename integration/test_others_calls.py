"""Calls with functions among their operands, in graphs of other front ends: normalised, lowered, emitted."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.fx as fx
from torch.utils.checkpoint import checkpoint

import intarsia
from intarsia._torch_backend import torch_backend
from intarsia_autodiff import joint_graph, partition
from intarsia_functionalizer import functionalize
from intarsia_ir import aten, meta
from intarsia_ir.errors import UnsupportedError
from intarsia_recorder import lifted_values, normalise
from integration.test_others_graphs import PASSES, flat, lowered

pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("ignore")]


@torch.library.custom_op("others_calls::add_into", mutates_args={"x"})
def add_into(x: torch.Tensor, y: torch.Tensor) -> None:
    x.add_(y)


@torch.library.custom_op("others_calls::grow", mutates_args={"xs"})
def grow(xs: list[torch.Tensor], by: float) -> torch.Tensor:
    for x in xs:
        x.mul_(by)
    return xs[0].sum()


@grow.register_fake
def _(xs, by):
    return xs[0].new_empty(())


class Cond(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda z: self.linear(z).relu(), torch.cos, (x,)) + 1


class While(torch.nn.Module):
    def forward(self, x):
        from torch._higher_order_ops import while_loop

        i, y = while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, torch.sin(y) * 2), (torch.tensor(0), x))
        return i, y + x


class Scan(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(4))

    def forward(self, x):
        from torch._higher_order_ops.scan import scan

        def step(carry, row):
            new = torch.tanh(carry * self.w + row)
            return new, new.sum() * 2

        last, sums = scan(step, x[0] * 0.5, x, dim=0)
        return last.relu(), sums + 1


class Mapped(torch.nn.Module):
    def forward(self, x):
        from torch._higher_order_ops.map import map as over_rows

        return over_rows(lambda row, y: torch.softmax(row, 0) * y.sum(), x, x * 2) + 1


class Checkpointed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return checkpoint(lambda z: torch.sin(self.linear(z)).relu(), x, use_reentrant=False) * 2


class GradMode(torch.nn.Module):
    def forward(self, x):
        with torch.no_grad():
            y = x.sin() + 1
        return y * x


class Autocast(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
        return y.float() + x


class Operators(torch.nn.Module):
    """Operators that write, which are functionalized by a call that is given the operator."""

    def forward(self, x):
        y, z = x * 2, x + 1
        add_into(y, x)
        total = grow([y, z], 3.0)
        return y + total, z.relu()


MODELS = {
    "cond": Cond,
    "while_loop": While,
    "scan": Scan,
    "map": Mapped,
    "checkpoint": Checkpointed,
    "grad mode": GradMode,
    "autocast": Autocast,
    "auto_functionalized": Operators,
}


def example():
    torch.manual_seed(3)
    return torch.randn(5, 4)


def from_export(model):
    program = torch.export.export(model, (example(),))
    return program, None, lambda x: (*lifted_values(program), x)


def from_decomposed_export(model):
    program = torch.export.export(model, (example(),)).run_decompositions({})
    return program, None, lambda x: (*lifted_values(program), x)


def captured(model, backend_of):
    seen = []

    def keeping(gm, inputs):
        seen.append((gm, list(inputs)))

        def run(*args):
            args = args[0] if len(args) == 1 and isinstance(args[0], list) else args
            seen.append(args)
            return gm(*args)

        return run

    x = example()
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend=backend_of(keeping), fullgraph=True)(x)
    (gm, inputs), args = seen
    return gm, inputs, lambda new: (*[new if torch.equal(a, x) else a for a in args], *lifted_values(gm))


def from_torch_compile(model):
    return captured(model, lambda keeping: keeping)


def from_fw_compiler(model):
    from torch._dynamo.backends.common import aot_autograd

    return captured(model, lambda keeping: aot_autograd(fw_compiler=keeping))


SOURCES = {
    "export": from_export,
    "decomposed export": from_decomposed_export,
    "torch.compile": from_torch_compile,
    "fw_compiler": from_fw_compiler,
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", MODELS)
def test_every_pass_works_on_it(name, source):
    torch.manual_seed(0)
    model = MODELS[name]()
    program, inputs, values_of = SOURCES[source](model)
    recorded = normalise(program, inputs)
    calls = [node for node in recorded.graph_module.graph.nodes if node.op == "call_function"]
    assert calls and all(meta.origins(node) for node in calls)
    for run in (PASSES[p](recorded) for p in PASSES):
        for x in (example(), -example()):
            with torch.no_grad():
                torch.testing.assert_close(flat(run(*values_of(x))), flat(model(x)))


def text_of(source, model):
    program, inputs, _ = SOURCES[source](model)
    gm = functionalize(normalise(program, inputs)).graph_module
    aten.verify(aten.parse_ir(aten.print_ir(gm), constants=aten.constants_of(gm)), functional=True)
    return aten.print_ir(gm)


@pytest.mark.parametrize(
    ("model", "shown"),
    [(Cond, "cond["), (While, "while_loop["), (Scan, "scan["), (Mapped, "scan[")],
)
@pytest.mark.parametrize("source", SOURCES)
def test_a_call_stays_a_call(model, shown, source):
    assert text_of(source, model()).count(shown) == 1


def test_an_operator_that_writes_is_one_call_of_its_twin():
    program, inputs, _ = from_fw_compiler(Operators())
    loops, _ = lowered(normalise(program, inputs))
    assert sum("add_into" in str(node.target) for node in loops.graph.nodes) == 1


def test_a_checkpoint_is_computed_again():
    """A graph of torch.compile's front end, differentiated by ours: what is in the region isn't saved."""
    model, x = Checkpointed(), example()
    seen = []
    torch._dynamo.reset()
    torch.compile(model, backend=lambda gm, inputs: seen.append((gm, inputs)) or gm, fullgraph=True)(x)
    ((gm, inputs),) = seen
    made = partition(functionalize(joint_graph(gm, inputs)))
    again = {name.rpartition("_default")[0] for name in made.plan.recomputed}
    assert {"sin", "addmm"} <= again


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ["scan", "map", "while_loop"])
def test_gradients_go_through_iterations(name, dynamic, fresh):
    torch.manual_seed(0)
    model = MODELS[name]()

    def gradients(run, x):
        results = run(x)
        loss = sum(result.square().sum() for result in torch.utils._pytree.tree_leaves(results))
        return results, torch.autograd.grad(loss, [x, *model.parameters()])

    torch._dynamo.reset()
    backend = functools.partial(torch_backend, options={"on_error": "raise"})
    fast = torch.compile(model, backend=backend, fullgraph=True, dynamic=dynamic)
    for x in (example(), example()[:3]) if dynamic else (example(),):
        x = x.requires_grad_()
        torch.testing.assert_close(gradients(fast, x), gradients(model, x))
    assert (intarsia.stats().graphs, intarsia.stats().fallbacks) == (1, 0)


def test_a_scan_of_no_rows_is_refused():
    program = torch.export.export(Scan(), (example(),))
    row = next(n for n in program.graph.nodes if n.op == "call_function" and "scan" in str(n.target))
    graph = fx.Graph()
    copies = {}
    for node in program.graph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
        if node is row:
            body, init, (xs,), others = copies[node].args
            with graph.inserting_before(copies[node]):
                none = graph.call_function(torch.ops.aten.slice.Tensor, (xs, 0, 0, 0))
            copies[node].args = (body, init, [none], others)
    gm = fx.GraphModule(program.graph_module, graph)
    with pytest.raises(UnsupportedError, match=r"a scan over .* rows"):
        normalise(gm, [*lifted_values(program), example()])


def test_other_calls_with_functions_are_named():
    from torch.nn.attention.flex_attention import flex_attention

    x = torch.randn(1, 1, 16, 8)
    seen = []
    torch._dynamo.reset()
    attention = lambda x: flex_attention(x, x, x, score_mod=lambda score, b, h, q, k: score * 2)
    torch.compile(attention, backend=lambda gm, inputs: seen.append((gm, inputs)) or gm, fullgraph=True)(x)
    ((program, inputs),) = seen
    with pytest.raises(UnsupportedError, match="takes functions as operands") as caught:
        normalise(program, inputs)
    assert caught.value.where
