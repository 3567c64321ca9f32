"""Operators of users' libraries: those that write are called in functional form, and so are those that nest lists."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_functionalizer import functionalize, to_aten
from intarsia_ir import aten
from intarsia_ir.errors import UnsupportedError
from intarsia_testkit.fired import Tally

LIBRARY = torch.library.Library("functionalizer_libraries", "FRAGMENT")
OPS = torch.ops.functionalizer_libraries
CALLS = Tally("functionalizer: calls of library operators", ["bump", "spread", "mixed", "same", "refused"])


def define(schema, run, fake):
    name = LIBRARY.define(schema)
    LIBRARY.impl(name, run, "CPU")
    torch.library.register_fake(f"functionalizer_libraries::{name}", fake, lib=LIBRARY)


def bump(x, y, *, by=1.0):
    x.add_(y.sum() * by)


def spread(x, ys, z):
    for y in [x, *ys]:
        if y is not None:
            y.mul_(2).add_(z.sum())
    return z.sum() + 1


def mixed(x, n):
    return x + n, [x * k for k in range(n)], None


define("bump(Tensor(a!) x, Tensor y, *, float by=1.0) -> ()", bump, lambda x, y, by=1.0: None)
define("spread(Tensor(a!)? x, Tensor(b!)[] ys, Tensor z) -> Tensor", spread, lambda x, ys, z: z.new_empty(()))
define(
    "mixed(Tensor x, int n) -> (Tensor, Tensor[], Tensor?)",
    mixed,
    lambda x, n: (torch.empty_like(x), [torch.empty_like(x) for _ in range(n)], None),
)
define("same(Tensor(a!) x, Tensor(b!) y) -> (Tensor(b!), Tensor(a!))", lambda x, y: (y.add_(1), x.mul_(2)),
       lambda x, y: (y, x))  # fmt: skip

VIEWS = [
    lambda x: x[..., :1],
    lambda x: x[..., 1:],
    lambda x: x.t() if x.dim() == 2 else x[::2],
    lambda x: x.view(-1) if x.is_contiguous() else x + 1,
    lambda x: x * 2,
    lambda x: x.clone(),
]
places = st.integers(0, 7)
steps = st.one_of(
    st.tuples(st.just("view"), places, st.integers(0, len(VIEWS) - 1)),
    st.tuples(st.just("bump"), places, places),
    st.tuples(st.just("spread"), st.none() | places, st.lists(places, max_size=2), places),
    st.tuples(st.just("mixed"), places, st.integers(0, 2)),
    st.tuples(st.just("same"), places, places),
)


def run(program, *inputs):
    pool = list(inputs)
    pick = lambda place: None if place is None else pool[place % len(pool)]
    for kind, *args in program:
        if kind == "view":
            pool.append(VIEWS[args[1]](pick(args[0])))
        elif kind == "bump":
            OPS.bump(pick(args[0]), pick(args[1]), by=0.5)
        elif kind == "spread":
            pool.append(OPS.spread(pick(args[0]), [pick(a) for a in args[1]], pick(args[2])).view(1))
        elif kind == "mixed":
            first, more, _ = OPS.mixed(pick(args[0]), args[1])
            pool += [first, *more]
        else:
            pool += OPS.same(pick(args[0]), pick(args[1]))
    return pool[len(inputs) :]


@settings(derandomize=True, deadline=None, max_examples=120)
@given(st.lists(steps, min_size=1, max_size=7))
def test_random_programs(check_program, program):
    """Views, copies and calls in any order mean what they mean in eager, unless operands share elements."""
    try:
        check_program(lambda *inputs: run(program, *inputs), torch.randn(3, 4), torch.randn(4))
    except UnsupportedError as error:
        assert error.code in ("functionalize.shared_operands", "functionalize.metadata"), error
        CALLS.count("refused")
    else:
        for kind, *_ in program:
            CALLS.count(kind)


def test_every_kind_of_call_occurred():
    assert not CALLS.missing()


def targets(done):
    return [str(n.target) for n in done.graph_module.graph.find_nodes(op="call_function") if "::" not in str(n.target)]


def test_a_written_operand_becomes_an_item_of_the_form(check_program):
    done = check_program(lambda x, y: OPS.bump(x, y), torch.zeros(2), torch.ones(2))
    calls = [n for n in done.graph_module.graph.nodes if n.op == "call_function"]
    assert str(calls[0].target) == "intarsia_functional.functionalizer_libraries__bump.default"
    assert len(calls) == 2 and len(done.signature.writes) == 1


def test_columns_of_one_tensor_are_written_together(check_program):
    """Their elements lie between each other in memory, and none is in both."""

    def rotate(x):
        q, k = x[:, :2], x[:, 2:]
        OPS.spread(q, [k], x[:, :0])
        return x.sum(0)

    check_program(rotate, torch.randn(3, 4))


def test_what_is_not_written_keeps_its_op(check_program):
    done = check_program(lambda x: OPS.spread(None, [], x), torch.randn(3))
    forms = [n for n in done.graph_module.graph.nodes if "intarsia_functional" in str(n.target)]
    assert len(forms) == 1 and not done.signature.writes


@pytest.mark.parametrize("program", [lambda x: OPS.bump(x, x), lambda x: OPS.bump(x[:2], x[1:])])
def test_operands_that_share_elements_are_refused(program):
    with pytest.raises(UnsupportedError, match=r"functionalize\.shared_operands"):
        functionalize(to_aten(program, (torch.zeros(3),)))


def test_a_form_is_read_from_text():
    done = functionalize(to_aten(lambda x, y: OPS.bump(x, y, by=2.0), (torch.zeros(2), torch.ones(2))))
    text = aten.print_ir(done.graph_module)
    again = aten.parse_ir(text)
    assert aten.print_ir(again) == text
    assert aten.interpret(again, torch.zeros(2), torch.ones(2))[0].tolist() == [4.0, 4.0]


def test_an_operator_that_is_defined_anew_has_a_new_form():
    results = []
    for factor in (2.0, 3.0):
        with torch.library._scoped_library("functionalizer_anew", "FRAGMENT") as library:
            library.define("scale(Tensor(a!) x) -> ()")
            library.impl("scale", lambda x, factor=factor: x.mul_(factor) and None, "CPU")
            torch.library.register_fake("functionalizer_anew::scale", lambda x: None, lib=library)
            done = functionalize(to_aten(lambda x: torch.ops.functionalizer_anew.scale(x), (torch.ones(1),)))
            results.append(aten.interpret(done.graph_module, torch.ones(1))[0].item())
    assert results == [2.0, 3.0]
