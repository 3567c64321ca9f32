"""Which device a graph's kernels are for, and which of its calls run on the host."""

import pytest

from intarsia_ir.aten import device_of, host_nodes, parse_ir
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.torch import check_devices

TWO = "on 'cuda:0'"


def graph(inputs, *calls, result="%0"):
    lines = [f"  {call}  # model.py:1 in forward" for call in calls]
    return parse_ir("\n".join(["// dialect: aten 2", f"graph({inputs}) {{", *lines, f"  return ({result},)", "}", ""]))


def on_host(gm):
    assert str(device_of(gm)) == "cuda:0"
    return [str(n.target) for n in gm.graph.nodes if n in host_nodes(gm)]


def test_a_graph_on_one_device_has_no_host_nodes():
    cpu = graph("%x: f32[2]", "%0: f32[2] = aten.sin.default(%x)")
    cuda = graph(f"%x: f32[2] {TWO}", f"%0: f32[2] {TWO} = aten.sin.default(%x)")
    assert (str(device_of(cpu)), str(device_of(cuda))) == ("cpu", "cuda:0")
    assert host_nodes(cpu) == host_nodes(cuda) == frozenset()


def test_copies_between_devices_and_calls_on_the_cpu_are_host_nodes():
    gm = graph(
        f"%x: f32[2] {TWO}",
        "%0: f32[2] = aten._to_copy.default(%x, device=device('cpu'))",
        "%1: f32[2] = aten.sin.default(%0)",
        f"%2: f32[2] {TWO} = aten._to_copy.default(%1, device=device('cuda:0'))",
        f"%3: f32[2] {TWO} = aten.cos.default(%2)",
        result="%3",
    )
    assert on_host(gm) == ["aten._to_copy.default", "aten.sin.default", "aten._to_copy.default"]


@pytest.mark.parametrize(
    "call",
    [
        f"%0: f32[2] {TWO} = aten.mul.Tensor(%x, %s)",
        f"%0: f32[3] {TWO} = aten.index.Tensor(%x, [%i])",
        f"%0: f32[2] {TWO} = aten.index_put.default(%x, [%i], %s)",
    ],
)
def test_numbers_and_indices_are_brought_to_the_device(call):
    assert on_host(graph(f"%x: f32[2] {TWO}, %s: f32[], %i: i64[3]", call)) == []


def test_a_call_of_numbers_on_the_cpu_is_a_host_node():
    gm = graph(
        f"%x: f32[2] {TWO}, %s: f32[]",
        "%0: f32[] = aten.neg.default(%s)",
        f"%1: f32[2] {TWO} = aten.mul.Tensor(%x, %0)",
        result="%1",
    )
    assert on_host(gm) == ["aten.neg.default"]


@pytest.mark.parametrize("places", [("cuda:0", "cuda:1"), ("cpu", "meta"), ("cpu", "cuda:0", "cuda:1")])
def test_other_devices_are_refused(places):
    inputs = ", ".join(f"%x{k}: f32[2] on {place!r}" for k, place in enumerate(places))
    calls = [f"%{k}: f32[2] on {place!r} = aten.sin.default(%x{k})" for k, place in enumerate(places)]
    gm = graph(inputs, *calls)
    for function in (device_of, host_nodes):
        with pytest.raises(UnsupportedError) as caught:
            function(gm)
        assert caught.value.code == "aten.devices"


@pytest.mark.parametrize(
    ("backend", "places", "refused"),
    [
        ("cpp", ("cpu",), ""),
        ("cpp", ("cpu", "cuda:0"), "cuda"),
        ("triton", ("cuda:0",), ""),
        ("triton", ("cpu", "cuda:0"), ""),
        ("triton", ("cpu",), "cpu"),
        ("triton", ("cuda:0", "meta"), "meta"),
        ("auto", ("cpu", "cuda:0"), ""),
        ("auto", ("meta",), "meta"),
    ],
)
def test_backends_serve_some_devices(backend, places, refused):
    served = {"cpp": ("cpu",), "triton": ("cuda",)}.get(backend, ("cpu", "cuda"))
    inputs = ", ".join(f"%x{k}: f32[2] on {place!r}" for k, place in enumerate(places))
    gm = graph(inputs, f"%0: f32[2] on {places[0]!r} = aten.sin.default(%x0)")
    if not refused:
        return check_devices(gm, (), backend, served)
    with pytest.raises(UnsupportedError, match=f"a tensor is on {refused}, and backend '{backend}' serves"):
        check_devices(gm, (), backend, served)


def test_a_graph_that_moves_its_inputs_to_a_gpu_is_one_for_a_gpu():
    gm = graph("%x: f32[2]", f"%0: f32[2] {TWO} = aten._to_copy.default(%x, device=device('cuda:0'))")
    (x,) = gm.graph.find_nodes(op="placeholder")
    check_devices(gm, [x.meta["val"]], "triton", ("cuda",))
    with pytest.raises(UnsupportedError, match="on cuda, and backend 'cpp' serves cpu"):
        check_devices(gm, [x.meta["val"]], "cpp", ("cpu",))


def test_an_input_that_nothing_reads_may_be_anywhere():
    gm = graph(f"%x: f32[2] {TWO}, %y: f32[2] on 'cuda:1'", f"%0: f32[2] {TWO} = aten.sin.default(%x)")
    assert on_host(gm) == []
