"""The differential check notices each way in which a pass can be wrong."""

import operator
from collections.abc import Callable

import pytest
import torch
import torch.fx as fx
from hypothesis import HealthCheck, given, settings

from intarsia_ir import (
    AliasOfInput,
    AliasOfOutput,
    Constant,
    Fresh,
    InputItself,
    Origin,
    Signature,
    VerifyError,
    Write,
    aten,
    meta,
)
from intarsia_testkit.differential import apply_signature, check_functionalized, check_pass, clone_all, same_results
from intarsia_testkit.strategies import strided_tensors

PROGRAM = """// dialect: aten 2
graph(%x: f32[2, 3]) {
  # m.py:1 in f
  %0: f32[2, 3] = aten.sin.default(%x)  #1
  # m.py:2 in f
  %1: f32[2, 3] = aten.mul.Tensor(%0, 2)  #2
  return (%1,)
}
origins
  1 m.py
    f: 1, 2
"""
ARGS = (torch.arange(6.0).view(2, 3),)


def changed(old: str, new: str) -> Callable[[fx.GraphModule], fx.GraphModule]:
    """A pass that gives another program."""
    return lambda gm: aten.parse_ir(PROGRAM.replace(old, new))


def in_place(gm: fx.GraphModule) -> fx.GraphModule:
    next(
        iter(gm.graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default))
    ).target = torch.ops.aten.cos.default
    return gm


def with_foreign_origin(gm: fx.GraphModule) -> fx.GraphModule:
    other = aten.parse_ir(PROGRAM)
    meta.set_origins(list(other.graph.nodes)[1], [Origin("else.py", 1, "g")])
    return other


def test_right_pass_passes_and_its_result_is_returned() -> None:
    result = check_pass(changed("", ""), aten.parse_ir(PROGRAM), ARGS, aten, verify={"functional": True})
    assert aten.print_ir(result) == PROGRAM


WRONG = {
    "values": (changed("Tensor(%0, 2)", "Tensor(%0, 3)"), "Mismatched elements"),
    "result type": (changed("aten.mul.Tensor(%0, 2)", "aten._to_copy.default(%0, dtype=f64)"), "dtype"),
    "number of results": (changed("(%1,)", "(%1, %1)"), "2 results instead of 1"),
    "constant result": (changed("(%1,)", "(3,)"), "a int instead of a tensor"),
    "input changed": (in_place, "the pass changed its input"),
    "origins": (with_foreign_origin, "origins that the input doesn't"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_pass_fails(name: str) -> None:
    pass_, words = WRONG[name]
    with pytest.raises(AssertionError, match=words):
        check_pass(pass_, aten.parse_ir(PROGRAM), ARGS, aten)


def test_invalid_output_fails() -> None:
    with pytest.raises(VerifyError, match="A10"):
        check_pass(changed("  #1", ""), aten.parse_ir(PROGRAM), ARGS, aten)


def test_strides_are_compared() -> None:
    a = torch.ones(2, 3)
    with pytest.raises(AssertionError, match="strides"):
        same_results([a], [a.t().contiguous().t()])
    same_results([a], [a.t().contiguous().t()], strides=False)
    same_results([torch.ones(1, 3)[:, :1]], [torch.ones(1, 1)])


def test_nan_equals_nan_and_constants_have_types() -> None:
    same_results([torch.tensor([float("nan")]), float("nan"), None], [torch.tensor([float("nan")]), float("nan"), None])
    with pytest.raises(AssertionError, match="True instead of 1"):
        same_results([True], [1])


@settings(derandomize=True, deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(strided_tensors(), strided_tensors(writable=True))
def test_clones_keep_layout_and_sharing(a: torch.Tensor, b: torch.Tensor) -> None:
    view = b.view(-1) if b.is_contiguous() else b
    a2, b2, view2, number = clone_all([a, b, view, 3])
    same_results([a2, b2, view2], [a, b, view], rtol=0, atol=0)
    assert number == 3 and b2.storage_offset() == b.storage_offset()
    b2.fill_(1)
    assert bool((view2 == 1).all()) and b2.untyped_storage().data_ptr() != b.untyped_storage().data_ptr()


# ---- functional graphs with a signature ------------------------------------------------------------------------

FUNCTIONAL = """// dialect: aten 2
graph(%x: f32[2, 3]) {
  # m.py:1 in f
  %0: f32[2, 3] = aten.add.Tensor(%x, 1)  #1
  # m.py:2 in f
  %1: f32[2, 3] = aten.mul.Tensor(%0, 2)  #2
  return (%0, %1)
}
origins
  1 m.py
    f: 1, 2
"""
ROW, WHOLE = ((3,), (1,), 3), ((2, 3), (3, 1), 0)


def eager(x: torch.Tensor) -> list[object]:
    x.add_(1)
    y = x * 2
    return [x, x[1], y, y[1], 5]


SIGNATURE = Signature(
    outputs=(InputItself(0), AliasOfInput(0, ROW), AliasOfOutput(1, WHOLE), AliasOfOutput(1, ROW), Constant(5)),
    writes=(Write(0, 0),),
)


def test_functional_graph_with_its_signature() -> None:
    check_functionalized(eager, aten.parse_ir(FUNCTIONAL), SIGNATURE, ARGS, aten)
    assert ARGS[0][0, 0] == 0


@pytest.mark.parametrize(
    "signature",
    [
        Signature(outputs=SIGNATURE.outputs),
        Signature(outputs=SIGNATURE.outputs, writes=(Write(0, 1),)),
        Signature(outputs=(Fresh(0), *SIGNATURE.outputs[1:]), writes=SIGNATURE.writes),
        Signature(outputs=(*SIGNATURE.outputs[:2], Fresh(0), *SIGNATURE.outputs[3:]), writes=SIGNATURE.writes),
        Signature(outputs=(*SIGNATURE.outputs[:4], Constant(6)), writes=SIGNATURE.writes),
    ],
    ids=["write missing", "wrong write", "copy instead of the input", "wrong result", "wrong constant"],
)
def test_wrong_signatures_fail(signature: Signature) -> None:
    with pytest.raises(AssertionError):
        check_functionalized(eager, aten.parse_ir(FUNCTIONAL), signature, ARGS, aten)


def test_epilogue_writes_before_it_makes_views() -> None:
    x = torch.zeros(2)
    signature = Signature(outputs=(AliasOfInput(0, ((1,), (1,), 1)),), writes=(Write(0, 0),))
    (view,) = apply_signature([torch.ones(2)], signature, [x])
    assert view.item() == 1.0 and operator.is_(view._base, x)
