"""Graphs that other front ends made, normalised: every pass alone works on each, or says what it misses."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.fx as fx
from torch.fx.experimental.proxy_tensor import make_fx

import intarsia_cpp
import intarsia_fuser
import intarsia_loops
import intarsia_lowering
import intarsia_rewrites
import intarsia_scheduler
from intarsia_autodiff import joint_graph, partition
from intarsia_functionalizer import functionalize, to_aten
from intarsia_ir import aten, meta
from intarsia_ir.errors import InvalidArgumentError, VerifyError
from intarsia_ir.records import Role, Target
from intarsia_recorder import lifted_values, normalise
from intarsia_testkit.differential import apply_signature

TARGET = Target("cpu", "avx2", threads=2)


class Model(torch.nn.Module):
    """A buffer that is written, a tied constant, a softmax."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x):
        y = torch.nn.functional.silu(self.linear(x)) * 1
        self.seen.add_(y.detach().sum(0))
        return torch.softmax(y + y, -1), (x.sum() * 2, self.seen + 1)


def examples():
    torch.manual_seed(0)
    return Model(), torch.randn(3, 4)


# ---- sources: each returns (program, examples or None, the values of all inputs, what the program gives for them)


def of_module(gm, x, inputs):
    """A graph that holds its tensors itself."""
    values = (x, *lifted_values(gm))
    return gm, inputs, tuple(t.detach().clone() for t in values), lambda: gm(x)


def from_symbolic_trace():
    model, x = examples()
    return of_module(fx.symbolic_trace(model), x, (x,))


def from_make_fx(**how):
    model, x = examples()
    gm = make_fx(lambda x: model(x), _allow_non_fake_inputs=True, **how)(x)
    return of_module(gm, x, None if how else (x,))


def from_export():
    model, x = examples()
    program = torch.export.export(model, (x,))
    values = (*lifted_values(program), x)
    return program, None, tuple(t.detach().clone() for t in values), lambda: program.module()(x)


def from_exported_module():
    model, x = examples()
    return of_module(torch.export.export(model, (x,)).module(), x, (x,))


def captured(backend_of):
    """A graph that torch.compile, or AOTAutograd in it, gives to a function of a user's."""
    model, x = examples()
    seen = []

    def keeping(gm, inputs):
        def run(*args):
            args = args[0] if len(args) == 1 and isinstance(args[0], list) else args
            given = tuple(t.detach().clone() for t in args)
            results = gm(*args)
            seen.append((gm, list(inputs), given, [t.detach().clone() for t in results]))
            return results

        return run

    with torch.no_grad():
        torch._dynamo.reset()
        torch.compile(model, backend=backend_of(keeping), fullgraph=True)(x)
    ((gm, inputs, values, results),) = seen
    return gm, inputs, values, lambda: results


def from_torch_compile():
    return captured(lambda keeping: keeping)


def from_fw_compiler():
    from torch._dynamo.backends.common import aot_autograd

    return captured(lambda keeping: aot_autograd(fw_compiler=keeping))


def from_joint():
    """A joint graph, as AOTAutograd gives it to a function that partitions it."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import default_partition

    model, x = examples()
    seen = []

    def keeping(gm, inputs, **how):
        seen.append(copy.deepcopy(gm))
        return default_partition(gm, inputs, **how)

    def as_it_is(gm, inputs):
        def run(args):
            return gm(*args)

        run._boxed_call = True
        return run

    torch._dynamo.reset()
    torch.compile(model, backend=aot_autograd(fw_compiler=as_it_is, partition_fn=keeping), fullgraph=True)(x)
    (gm,) = seen
    placeholders = gm.graph.find_nodes(op="placeholder")
    values = tuple(torch.randn(meta.value(node).shape) for node in placeholders)

    def run():
        _, *results = leaves_of_joint(gm, values)  # the first is what the program writes
        return results

    return gm, None, tuple(v.clone() for v in values), run


def leaves_of_joint(gm, values):
    n_tangents = sum(node.name.startswith("tangents") for node in gm.graph.find_nodes(op="placeholder"))
    results = gm([*values[: len(values) - n_tangents]], [*values[len(values) - n_tangents :]])
    return [r for r in torch.utils._pytree.tree_leaves(results) if r is not None]


SOURCES = {
    "symbolic_trace": from_symbolic_trace,
    "make_fx": from_make_fx,
    "make_fx symbolic": lambda: from_make_fx(tracing_mode="symbolic"),
    "export": from_export,
    "exported module": from_exported_module,
    "torch.compile": from_torch_compile,
    "fw_compiler": from_fw_compiler,
    "joint graph": from_joint,
}


# ---- passes: each from Recorded to a function of the flat inputs


def after_functionalize(recorded):
    done = functionalize(recorded)
    return lambda *args: apply_signature(aten.interpret(done.graph_module, *args), done.signature, list(args))


def after(rewrite, **how):
    def apply(recorded):
        done = functionalize(recorded)
        made = rewrite(done.graph_module, **how)
        return lambda *args: apply_signature(aten.interpret(made, *args), done.signature, list(args))

    return apply


def lowered(recorded):
    done = functionalize(recorded)
    return intarsia_lowering.lower(done.graph_module, facts=done.facts), done.signature


def after_lower(recorded):
    loops, signature = lowered(recorded)
    return lambda *args: apply_signature(intarsia_loops.loops.interpret(loops, *args), signature, list(args))


def fused(recorded):
    loops, signature = lowered(recorded)
    return intarsia_fuser.apply(loops, intarsia_fuser.plan(loops, target=TARGET)), signature


def after_fuse(recorded):
    kernels, signature = fused(recorded)
    return lambda *args: apply_signature(intarsia_loops.kernels.interpret(kernels, *args), signature, list(args))


def after_schedule(recorded):
    kernels, signature = fused(recorded)
    made = intarsia_scheduler.apply(kernels, intarsia_scheduler.schedule(kernels, TARGET))
    return lambda *args: apply_signature(intarsia_loops.tiles.interpret(made, *args), signature, list(args))


def after_emit(recorded):
    kernels, signature = fused(recorded)
    source = intarsia_cpp.emit_unit(intarsia_scheduler.scheduled(kernels, TARGET).launches)
    assert source.launches
    return lambda *args: apply_signature(intarsia_loops.kernels.interpret(kernels, *args), signature, list(args))


PASSES = {
    "functionalize": after_functionalize,
    "fold_constants": after(intarsia_rewrites.fold_constants),
    "eliminate_common_subexpressions": after(intarsia_rewrites.eliminate_common_subexpressions),
    "eliminate_dead_code": after(intarsia_rewrites.eliminate_dead_code),
    "prefer_channels_last": after(intarsia_rewrites.prefer_channels_last, target=TARGET),
    "lower": after_lower,
    "fuse": after_fuse,
    "schedule": after_schedule,
    "emit": after_emit,
}


def flat(results):
    return [t.detach() for t in torch.utils._pytree.tree_leaves(results) if t is not None]


@pytest.mark.peer
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", PASSES)
def test_every_pass_works_on_every_source(name, source):
    program, inputs, values, oracle = SOURCES[source]()
    recorded = normalise(program, inputs)
    run = PASSES[name](recorded)
    with torch.no_grad():
        actual, expected = flat(run(*values)), flat(oracle())
    torch.testing.assert_close(actual, expected)


# ---- what a normalised graph knows


def here(node):
    return any(origin.file == __file__ for origin in meta.origins(node))


@pytest.mark.peer
def test_a_joint_graph_knows_its_tangents_and_gradients_and_is_partitioned():
    gm, _, values, oracle = from_joint()
    recorded = normalise(gm)
    roles = [spec.role for spec in recorded.signature.inputs]
    tie = recorded.signature.joint
    assert (
        roles == [Role.USER] * 4 + [Role.TANGENT] and tie.n_outputs == 3 and [t.position for t in tie.tangents] == [0]
    )
    assert [recorded.signature.inputs[n].requires_grad for n in range(4)] == [n in tie.gradients for n in range(4)]
    joint = functionalize(recorded)
    (write,) = joint.signature.writes
    made = partition(joint).partition
    (backward,), (halves,) = made.backwards, made.halves
    results = aten.interpret(made.forward.graph_module, *values[:4])
    saved = [values[s.position] if s.is_input else results[s.position] for s in halves.saved]
    gradients = aten.interpret(backward.graph_module, *saved, *values[4:])
    torch.testing.assert_close(results[write.result], leaves_of_joint(gm, values)[0])
    torch.testing.assert_close([*gradients], oracle()[tie.n_outputs :])
    assert len(halves.saved) < len(joint.graph_module.graph.find_nodes(op="placeholder")) + 3


@pytest.mark.peer
def test_a_joint_graph_of_a_loss_has_its_gradients_among_the_results():
    from torch._functorch.aot_autograd import aot_export_module

    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)
            self.register_buffer("seen", torch.zeros(2))

        def forward(self, x):
            y = self.linear(x)
            self.seen.add_(y.detach().sum(0))
            return (y.square().sum(), y.detach())

    gm, _ = aot_export_module(Loss(), (torch.randn(4, 3),), trace_joint=True, output_loss_index=0)
    recorded = normalise(gm)
    assert (
        recorded.signature.joint is None
    )  # the gradient of the loss is a constant of the graph, so nothing is tangent
    loops, signature = lowered(recorded)
    placeholders = gm.graph.find_nodes(op="placeholder")
    values = [torch.randn(meta.value(node).shape) for node in placeholders]
    actual = flat(apply_signature(intarsia_loops.loops.interpret(loops, *values), signature, list(values)))
    torch.testing.assert_close(actual, flat(gm(*values)))


@pytest.mark.peer
@pytest.mark.parametrize("source", ["export", "exported module", "torch.compile", "fw_compiler", "joint graph"])
def test_users_lines_are_kept(source):
    program, inputs, *_ = SOURCES[source]()
    calls = [node for node in normalise(program, inputs).graph_module.graph.nodes if node.op == "call_function"]
    assert calls and all(map(here, calls))


@pytest.mark.peer
def test_roles_and_sources_of_an_exported_program():
    program, *_ = from_export()
    recorded = normalise(program)
    roles = {str(spec.source): spec.role for spec in recorded.signature.inputs}
    assert roles == {
        "self.linear.weight": Role.PARAMETER,
        "self.linear.bias": Role.PARAMETER,
        "self.seen": Role.BUFFER,
        "x": Role.USER,
    }
    assert [spec.requires_grad for spec in recorded.signature.inputs] == [True, True, False, False]
    functional = functionalize(recorded)
    (write,) = functional.signature.writes
    assert recorded.signature.inputs[write.input].role is Role.BUFFER


def dynamic_sources():
    def program(x):
        return torch.softmax(x * 2, -1).reshape(-1), x.shape[0] * 2

    class Wrapped(torch.nn.Module):
        def forward(self, x):
            return program(x)[0]

    x, seen = torch.randn(5, 4), []

    def backend(gm, inputs):
        seen.append((gm, list(inputs)))
        return gm.forward

    torch._dynamo.reset()
    torch.compile(lambda x: program(x)[0], backend=backend, dynamic=True)(x)
    size = torch.export.Dim("n", min=2)
    exported = torch.export.export(Wrapped(), (x,), dynamic_shapes=({0: size},))
    return {
        "make_fx": (make_fx(lambda x: program(x)[0], tracing_mode="symbolic")(x), None),
        "export": (exported, None),
        "torch.compile": seen[0],
    }


@pytest.mark.peer
@pytest.mark.parametrize("source", ["make_fx", "export", "torch.compile"])
def test_sizes_that_are_symbols_stay_symbols(source):
    program, inputs = dynamic_sources()[source]
    recorded = normalise(program, inputs)
    assert recorded.facts.symbols
    loops, signature = lowered(recorded)
    x = torch.randn(7, 4)
    nodes = recorded.graph_module.graph.find_nodes(op="placeholder")
    # torch.compile has inputs for the sizes, 5 and 4 in the example, in front of the tensor
    values = map(meta.value, nodes)
    args = [x if isinstance(value, torch.Tensor) else {5: 7, 4: 4}[value.node.hint] for value in values]
    (actual,) = flat(apply_signature(intarsia_loops.loops.interpret(loops, *args), signature, args))
    torch.testing.assert_close(actual, torch.softmax(x * 2, -1).reshape(-1))


# ---- what is missing is named


def test_missing_examples_are_named():
    with pytest.raises(InvalidArgumentError, match=r"values of x, y: .* without examples") as caught:
        normalise(fx.symbolic_trace(lambda x, y: x + y))
    assert "x, y" in caught.value.hints[0]


def test_what_is_no_graph_is_refused_with_the_remedy():
    with pytest.raises(InvalidArgumentError, match=r"a function is no graph.*\n.*record\(program, inputs\)"):
        normalise(lambda x: x, (torch.zeros(2),))


@pytest.mark.peer
def test_a_condition_of_an_exported_program_is_one_of_ours():
    class Choice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)

        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda z: self.linear(z), torch.cos, (x,)) + 1

    model, inputs = Choice(), torch.randn(2, 3).abs()
    recorded = normalise(torch.export.export(model, (inputs,)))
    loops, signature = lowered(recorded)
    for x in (inputs, -inputs):
        args = [model.linear.weight, model.linear.bias, x]
        with torch.no_grad():
            (actual,) = flat(apply_signature(intarsia_loops.loops.interpret(loops, *args), signature, args))
            torch.testing.assert_close(actual, (model.linear(x) if x.sum() > 0 else x.cos()) + 1)


# ---- a pass that is given another dialect says so


def levels():
    torch_graph = fx.symbolic_trace(lambda x: (torch.relu(x) + 1,))
    aten_graph = functionalize(to_aten(torch_graph, (torch.randn(3),))).graph_module
    loops = intarsia_lowering.lower(aten_graph)
    kernels = intarsia_fuser.apply(loops, intarsia_fuser.plan(loops))
    return {"torch": torch_graph, "aten": aten_graph, "loops": loops, "kernels": kernels}


TAKES = {
    "torch": list(intarsia_rewrites.BEFORE_AUTOGRAD),
    "aten": [
        functionalize,
        intarsia_rewrites.fold_constants,
        intarsia_rewrites.eliminate_common_subexpressions,
        intarsia_rewrites.eliminate_dead_code,
        intarsia_lowering.lower,
    ],
    "loops": [intarsia_fuser.plan],
    "kernels": [lambda gm: intarsia_scheduler.schedule(gm, TARGET)],
}


@pytest.mark.parametrize("given", ["torch", "aten", "loops", "kernels"])
@pytest.mark.parametrize("taken", TAKES)
def test_a_graph_of_another_dialect_is_told(taken, given):
    gm = levels()[given]
    for pass_ in TAKES[taken]:
        if taken == given:
            pass_(gm)
            continue
        with pytest.raises((VerifyError, InvalidArgumentError), match=rf"this is FX\({given}\)"):
            pass_(gm)


def test_passes_over_values_say_what_they_take():
    for gm in levels().values():
        with pytest.raises(InvalidArgumentError, match=r"joint_graph\(\.\.\.\).*must be Recorded"):
            partition(gm)
        with pytest.raises(InvalidArgumentError, match=r"launches.*must be Launches or Tiles"):
            intarsia_cpp.emit_unit(gm)
    for given in ("loops", "kernels"):
        with pytest.raises(InvalidArgumentError, match=rf"this is FX\({given}\)"):
            joint_graph(levels()[given], (torch.randn(3),))
    recorded = normalise(*from_symbolic_trace()[:2])
    with pytest.raises(InvalidArgumentError, match="joint"):
        partition(functionalize(recorded))
