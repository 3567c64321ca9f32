"""Programs over the CPU and a GPU: inputs and constants on the CPU stay there, the GPU's are made ready for kernels."""

from dataclasses import replace

import pytest
import torch

from intarsia_ir.records import Fresh, InputSpec, KernelSource, Launch, Signature, Target
from intarsia_ir.values import Partition
from intarsia_loops import Contract, Emitted
from intarsia_loops.index import axis, lift, row_major
from intarsia_loops.launches import Launches
from intarsia_loops.level_text import parse_value, print_value
from intarsia_loops.program import Buffer, Extern, Kernel, Nest, Program, TensorRef, load, val
from intarsia_runtime import Linked, assembled, link
from intarsia_runtime.warm import buildable

CUDA = torch.device("cuda:0")
aten = torch.ops.aten


class Library:
    """Stands for what is built on a machine with a GPU."""

    def prepare(self):
        pass

    def launcher(self, entry, n_arguments):
        return None


def buffer(device, *shape):
    sizes = tuple(map(lift, shape))
    return Buffer(sizes, row_major(sizes), "f32", device)


def ref(name, *shape):
    sizes = tuple(map(lift, shape))
    return TensorRef(name, sizes, row_major(sizes), lift(0))


def doubled(source, out):
    i = axis("i0", 4)
    x = load(source, (lift(i),), "f32")
    return Kernel((i,), (Nest(out, (i,), (), "map", val("add", x, x, dtype="f32"), "f32"),))


@pytest.fixture
def linked(monkeypatch):
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 0, raising=False)

    def make(buffers, items, *outputs, constants=None):
        launches = [
            Launch(f"kernel{n}", (item.steps[0].out, *item.reads()), (), (n, n + 1), ("1",))
            for n, item in enumerate(items)
            if isinstance(item, Kernel)
        ]
        made = {out for item in items for out in (item.outs if isinstance(item, Extern) else item.writes())}
        inputs = tuple(name for name in buffers if name not in made and name not in (constants or {}))
        program = Program(buffers, inputs, tuple(items), outputs, constants=constants or {})
        return link(program, KernelSource("", "triton", launches=tuple(launches)), Library(), device=CUDA)

    return make


def made_ready(run):
    return [line.split()[0] for line in run.source.splitlines() if "_ready(" in line]


def test_what_is_on_the_cpu_stays_there(linked):
    run = linked(
        {"x": buffer("cuda:0", 4), "h": buffer("cpu", 4), "y": buffer("cuda:0", 4), "z": buffer("cpu", 4)},
        [doubled("x", "y"), Extern(("z",), aten.sin.default, (ref("h", 4),))],
        ref("y", 4),
        ref("z", 4),
        ref("h", 4),
    )
    assert made_ready(run) == ["x"] and run.uses_host
    assert "z = _aten_sin_default(h)" in run.source and "return (y, z, _copy(h), )" in run.source


def test_constants_on_the_cpu_stay_there(linked):
    constant = torch.arange(4.0)
    run = linked(
        {"x": buffer("cuda:0", 4), "c": buffer("cpu", 4), "y": buffer("cuda:0", 4), "z": buffer("cpu", 4)},
        [doubled("x", "y"), Extern(("z",), aten.sin.default, (ref("c", 4),))],
        ref("y", 4),
        ref("z", 4),
        constants={"c": constant},
    )
    assert run.__globals__["c"].data_ptr() == constant.data_ptr()


def test_numbers_are_made_ready_for_kernels_alone(linked):
    i = axis("i0", 4)
    scaled = val("mul", load("x", (lift(i),), "f32"), load("s", (), "f32"), dtype="f32")
    run = linked(
        {"x": buffer("cuda:0", 4), "s": buffer("cuda:0"), "t": buffer("cuda:0"), "y": buffer("cuda:0", 4)}
        | {"z": buffer("cuda:0", 4)},
        [
            Kernel((i,), (Nest("y", (i,), (), "map", scaled, "f32"),)),
            Extern(("z",), aten.add.Tensor, (ref("y", 4), ref("t"))),
        ],
        ref("z", 4),
    )
    assert made_ready(run) == ["x", "s"] and not run.uses_host


def test_an_input_that_nothing_reads_is_no_work_on_the_cpu(linked):
    buffers = {"x": buffer("cuda:0", 4), "h": buffer("cpu", 4), "y": buffer("cuda:0", 4)}
    run = linked(buffers, [doubled("x", "y")], ref("y", 4))
    assert made_ready(run) == ["x"] and not run.uses_host


def test_work_on_the_cpu_is_not_replayed(linked):
    buffers = {"h": buffer("cpu", 4), "z": buffer("cpu", 4)}
    run = linked(buffers, [Extern(("z",), aten.sin.default, (ref("h", 4),))], ref("z", 4))
    signature = Signature((InputSpec("h"),), (Fresh(0),))
    with pytest.warns(RuntimeWarning, match="it runs as usual: it has tensors on the CPU"):
        assembled(Partition(Linked(run, signature, device=CUDA)), cuda_graphs=True)


def test_a_finished_plan_makes_room_for_what_launches_of_one_kernel_share(monkeypatch):
    """It has no local buffers but these: `t` is written by one launch of the kernel, and read by the next."""
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 0, raising=False)
    i = axis("i0", 4)
    first, second = (doubled(source, out).steps[0] for source, out in (("x", "t"), ("t", "y")))
    kernel = Kernel((i,), (first, second), frozenset({"t"}))
    program = Program({n: buffer("cuda:0", 4) for n in ("x", "t", "y")}, ("x",), (kernel,), (ref("y", 4),))
    launches = (Launch("kernel0", ("x", "t"), (), (0, 1), ("1",)), Launch("kernel1", ("t", "y"), (), (0, 1), ("1",)))
    source = KernelSource("", "triton", launches=launches)
    contract = Contract(Signature((InputSpec("x"),), (Fresh(0),)), (), Target("cuda", "sm_90"), CUDA)
    empty = torch.fx.GraphModule({}, torch.fx.Graph())
    emitted = Emitted(empty, contract, Launches(program, contract.target, (), 1), source)
    finished = buildable(emitted)
    assert set(finished.program.buffers) == {"x", "t", "y"} and finished.program.items[0].outs == ("y", "t")
    assert parse_value(print_value(finished)) == finished
    run = link(finished.program, source, Library(), device=CUDA)
    assert "t = _empty_strided" in run.source
    assert set(buildable(replace(emitted, source=KernelSource("", "triton"))).program.buffers) == {"x", "y"}
