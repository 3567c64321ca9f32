"""Collectives are nodes, with their waits; what a graph can't hold breaks, and no fake tensor gets to a group."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from tensor_executor import Executor

from intarsia_ir.records import GuardKind

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch is built without torch.distributed")
X = torch.arange(12.0).reshape(3, 4) / 7


@pytest.fixture(autouse=True)
def group(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def functional():
    import torch.distributed._functional_collectives as collectives

    return collectives


def all_reduce(x):
    y = x * 2
    assert dist.all_reduce(y, op=dist.ReduceOp.MAX) is None
    return y + 1


def all_reduce_input(x):
    dist.all_reduce(x)
    return x + 1


def broadcast(x):
    y = x * 2
    dist.broadcast(y, src=0)
    return y


def all_gather(x):
    outputs = [torch.empty_like(x)]
    dist.all_gather(outputs, x)
    return outputs[0] * 2


def all_gather_single(x):
    output = torch.empty_like(x)
    dist.all_gather_into_tensor(output, x * 2)
    return output


def reduce_scatter_single(x):
    output = torch.empty_like(x)
    dist.reduce_scatter_tensor(output, x, group=dist.group.WORLD)
    return output + dist.get_rank(dist.group.WORLD) if dist.get_backend() == "gloo" else x


def all_to_all_single(x):
    output = torch.empty_like(x)
    dist.all_to_all_single(output, x + 1)
    return output


WRITING = (
    all_reduce,
    all_reduce_input,
    broadcast,
    all_gather,
    all_gather_single,
    reduce_scatter_single,
    all_to_all_single,
)


def targets(capture):
    calls = [n for n in capture.graph_module.graph.nodes if n.op == "call_function"]
    return [str(n.target).removesuffix(".default").rpartition(".")[2] for n in calls]


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("fn", WRITING)
def test_what_writes_becomes_functional(fn):
    executor = Executor()
    expected, inputs = X.clone(), X.clone()
    torch.testing.assert_close(executor.call(fn, inputs), fn(expected))
    assert torch.equal(inputs, expected)
    (capture,) = executor.captures
    assert not capture.breaks and "wait_tensor" in targets(capture)
    assert any(guard.kind is GuardKind.IDENTITY and "WORLD" in str(guard.source) for guard in capture.guards)


@pytest.mark.parametrize("needs_grad", [False, True])
def test_functional_ones_are_nodes(needs_grad):
    collectives, world = functional(), dist.group.WORLD

    def fn(x):
        y = collectives.all_reduce(x * 2, "SUM", world)
        a, b = collectives.all_reduce_coalesced([x, y], "sum", world.group_name)
        z = collectives.all_to_all_single(a + b, None, None, world)
        return z * 2

    x = X.clone().requires_grad_(needs_grad)
    executor = Executor()
    torch.testing.assert_close(executor.call(fn, x), fn(x) + 0)
    (capture,) = executor.captures
    assert not capture.breaks and targets(capture).count("wait_tensor") == 4


def test_whoever_reads_after_a_wait_reads_what_came():
    def fn(x):
        y = torch.ops._c10d_functional.all_reduce(x * 2, "sum", dist.group.WORLD.group_name)
        torch.ops._c10d_functional.wait_tensor(y)
        return y * y

    executor = Executor()
    torch.testing.assert_close(executor.call(fn, X), fn(X))
    (capture,) = executor.captures
    (wait,) = [n for n in capture.graph_module.graph.nodes if "wait_tensor" in str(n.target)]
    (product,) = [n for n in capture.graph_module.graph.nodes if n.op != "output" and wait in n.all_input_nodes]
    assert product.args == (wait, wait)


def test_meshes_are_guarded_constants():
    mesh = dist.device_mesh.init_device_mesh("cpu", (1,), mesh_dim_names=("all",))

    def fn(x):
        y = x * mesh.size()
        dist.all_reduce(y, group=mesh.get_group("all"))
        return y + mesh.get_local_rank(), mesh.ndim

    executor = Executor()
    torch.testing.assert_close(executor.call(fn, X), fn(X))
    (capture,) = executor.captures
    assert not capture.breaks


def not_contiguous(x):
    y = (x * 2).t()
    dist.all_reduce(y.t())
    dist.all_reduce(x[:, :2])
    return y


def with_gradients(x):
    y = x.clone().requires_grad_() * 2
    dist.all_reduce(y)
    return y.detach()


def without_gradient(x):
    y = x.clone().requires_grad_()
    z = functional().broadcast(y * 2, 0, dist.group.WORLD) * 3
    (gradient,) = torch.autograd.grad(z.sum(), y)
    return z.detach() + 0, gradient


def barrier(x):
    dist.barrier()
    return x + 1


def gathered_objects(x):
    found = [None]
    dist.all_gather_object(found, 3)
    return x + found[0]


def reduced(x):
    y = x + 1
    dist.reduce(y, dst=0)
    return y


def checkpointed(x):
    def double(a):
        return functional().wait_tensor(torch.ops._c10d_functional.all_reduce(a * 2, "sum", "0"))

    return torch.utils.checkpoint.checkpoint(double, x, use_reentrant=False)


def written_functional(x):
    y = x * 2
    torch.ops._c10d_functional.wait_tensor(torch.ops._c10d_functional.all_reduce_(y, "sum", "0"))
    return y


def waits_for_input(x):
    return torch.ops._c10d_functional.wait_tensor(x) + 1


BREAKING = (
    not_contiguous,
    with_gradients,
    without_gradient,
    barrier,
    gathered_objects,
    reduced,
    checkpointed,
    written_functional,
    waits_for_input,
)


@pytest.mark.filterwarnings("ignore:.*autograd kernel was not registered")
@pytest.mark.parametrize("fn", BREAKING)
def test_what_no_graph_holds_runs_as_it_is(fn, monkeypatch):
    sent = watch(monkeypatch)
    executor = Executor()
    torch.testing.assert_close(executor.call(fn, X.clone()), fn(X.clone()))
    assert executor.captures[0].breaks
    assert not any(isinstance(tensor, torch._subclasses.FakeTensor) for tensor in sent)


def watch(monkeypatch):
    """Return a list of all tensors that process groups are given from now on."""
    sent = []
    for name in ("all_reduce", "reduce"):
        original = getattr(dist, name)
        monkeypatch.setattr(dist, name, lambda x, *a, _f=original, **k: (sent.append(x), _f(x, *a, **k))[1])
    return sent


@pytest.mark.parametrize("refused", ["a tuple", "several groups"])
def test_messages_that_eager_refuses_together_break(refused):
    """Eager checks the list first, and begins none."""
    other = dist.new_group([0])

    def fn(x):
        y = x * 2
        operations = [dist.P2POp(dist.isend, y, group=group, group_peer=0) for group in (dist.group.WORLD, other)]
        return dist.batch_isend_irecv(tuple(operations[:1]) if refused == "a tuple" else operations)

    executor = Executor()
    with pytest.raises(ValueError, match=r"Invalid|same group"):  # eager's own
        executor.call(fn, X)
    broken = executor.captures[0].breaks[0]
    assert broken.code == "tracer.collective" and "batch_isend_irecv is called with" in broken.reason


def test_a_message_whose_operation_was_changed_breaks():
    operation = dist.P2POp(dist.isend, X, group=dist.group.WORLD, group_peer=0)
    operation.op = print
    executor = Executor()
    with pytest.raises(TypeError):  # eager's own
        executor.call(lambda x: (x * 2, dist.batch_isend_irecv([operation])), X)
    assert "as its op" in executor.captures[0].breaks[0].reason


def test_sending_to_oneself_breaks():
    def fn(x):
        y = x * 2
        dist.send(y, 0)
        return y

    executor = Executor()
    with pytest.raises(ValueError, match="rank"):  # eager's own
        executor.call(fn, X)
    assert [b.code for b in executor.captures[0].breaks] == ["tracer.collective"]


def test_another_group_is_another_program(tmp_path):
    executor = Executor()
    torch.testing.assert_close(executor.call(all_reduce, X), X * 2 + 1)
    dist.destroy_process_group()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/again", rank=0, world_size=1)
    torch.testing.assert_close(executor.call(all_reduce, X), X * 2 + 1)
    assert len(executor.captures) == 2


def waited_for(x):
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    z = x + 1
    return y.add(z) if work.wait() else z


def asked(x):
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    while not work.is_completed():
        pass
    return y + 1, work.is_success(), work.result()[0] is y


def left_to_the_end(x):
    dist.all_reduce(x, async_op=True)
    return 3


def returned(x):
    y = x * 2
    return y, dist.all_reduce(y, async_op=True)


@pytest.mark.parametrize("fn", [waited_for, asked, left_to_the_end])
def test_what_is_begun_is_waited_for_in_the_graph(fn):
    executor = Executor()
    given, expected = X.clone(), X.clone()
    torch.testing.assert_close(executor.call(fn, given), fn(expected))
    assert torch.equal(given, expected)
    (capture,) = executor.captures
    assert not capture.breaks
    names = [getattr(n.target, "__name__", str(n.target)) for n in capture.graph_module.graph.nodes]
    assert sum("wait_tensor" in name for name in names) == 1, names


def test_what_is_returned_is_done_and_answers_as_a_work_does():
    executor = Executor()
    y, work = executor.call(returned, X.clone())
    assert torch.equal(y, X * 2) and work.wait() is work.is_completed() is True
    assert work.get_future().wait()[0] is y
    assert not executor.captures[0].breaks


def test_what_is_waited_for_behind_a_break_is_done_before_it():
    def fn(x):
        y = x * 2
        work = dist.all_reduce(y, async_op=True)
        dist.barrier()
        work.wait()
        return y + 1

    executor = Executor()
    torch.testing.assert_close(executor.call(fn, X.clone()), fn(X.clone()))
    assert executor.captures[0].breaks and executor.captures[0].graph_module is not None


REASONS = [(reduced, "reduce is called: one process"), (gathered_objects, "objects"), (barrier, "barrier is called")]


@pytest.mark.parametrize(("fn", "reason"), REASONS)
def test_a_break_says_what_was_called_and_why_it_breaks(fn, reason):
    executor = Executor()
    executor.call(fn, X.clone())
    broken = executor.captures[0].breaks[0]
    assert broken.code == "tracer.collective" and reason in broken.reason and broken.remedy
