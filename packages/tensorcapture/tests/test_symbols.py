"""Sizes and ints as symbols: what capture returns about them."""

from __future__ import annotations

import operator
import types

import pytest
import torch

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import ArgumentSource, GuardKind, Role, SizeSource, Symbolic
from intarsia_pyeval import link
from intarsia_shapes import mark_dynamic, mark_static
from intarsia_tensorcapture import capture

X, N = ArgumentSource("x"), ArgumentSource("n")


def scaled(x, n):
    if x.shape[0] > 2:  # the line of the fact
        return x[:n] * n
    return x


def relations(found):
    return [fact.relation for fact in found.facts.facts]


def test_nothing_is_a_symbol_unless_asked():
    found = capture(scaled, (torch.zeros(5, 3), 2))
    assert not found.facts.symbols and not found.facts.facts
    assert [spec.role for spec in found.signature.inputs] == [Role.USER]


def test_named_sizes_and_numbers_are_symbols_and_the_rest_is_constant():
    symbolic = Symbolic({X: frozenset({0})}, frozenset({N}))
    found = capture(scaled, (torch.zeros(5, 3), 4), dynamic=symbolic)
    assert dict(found.facts.symbols) == {"s0": "x.size(0)", "k0": "n"}
    assert found.facts.hints == {"s0": 5, "k0": 4}
    assert [(spec.name, spec.role, spec.source) for spec in found.signature.inputs] == [
        ("x", Role.USER, X),
        ("n", Role.SIZE, N),
    ]
    (shape,) = [guard.facts.shape for guard in found.guards if guard.kind is GuardKind.TENSOR]
    assert shape == (None, 3)


def test_a_fact_names_the_line_that_needs_it():
    found = capture(scaled, (torch.zeros(5, 3), 2), dynamic=True)
    fact = next(fact for fact in found.facts.facts if fact.relation == "(s0 > 2)")
    assert fact.origin.file == __file__ and fact.origin.line == scaled.__code__.co_firstlineno + 1


def test_zero_and_one_are_constants_as_sizes_alone():
    found = capture(lambda x, n: x + n, (torch.zeros(1, 3), 1), dynamic=True)
    assert dict(found.facts.symbols) == {"s0": "x.size(1)", "k0": "n", "t0": "x.stride(0)"}
    assert found.facts.ranges["k0"] == (0, (1 << 48) - 1)
    found = capture(lambda x, n: x + torch.zeros(n, 3), (torch.zeros(1, 3), 1), dynamic=True)
    assert "(k0 == 1)" in relations(found)
    found = capture(lambda x, n: x + torch.zeros(n, 3), (torch.zeros(1, 3), 2), dynamic=True)
    assert "(k0 >= 2)" in relations(found)


def test_equal_sizes_of_two_tensors_share_a_symbol_and_those_of_one_do_not():
    found = capture(lambda x, y: (x + 1, y + 1), (torch.zeros(4, 4), torch.zeros(4)), dynamic=True)
    assert {"s0", "s1"} <= set(found.facts.symbols) and "s0_1 == s0" in relations(found)


def test_parameters_stay_constant():
    layer = torch.nn.Linear(3, 4)
    found = capture(layer.forward, (torch.zeros(5, 3),), dynamic=True)
    assert next(iter(found.facts.symbols.values())) == "input.size(0)"
    assert "(s1 == 3)" in relations(found) or "input.size(1)" not in found.facts.symbols.values()


def test_strides_that_are_no_products_are_guarded_as_they_are():
    x = torch.zeros(5, 8)[:, :3]
    found = capture(lambda x: x + 1, (x,), dynamic=Symbolic({X: frozenset({0})}))
    (guard,) = [guard.facts for guard in found.guards if guard.kind is GuardKind.TENSOR]
    assert (guard.shape, guard.strides) == ((None, 3), (8, 1))


def test_a_number_that_must_be_known_is_specialised():
    def f(x, n):
        for _ in range(n):
            x = x + 1
        return x

    assert "(k0 == 3)" in relations(capture(f, (torch.zeros(2), 3), dynamic=Symbolic(numbers=frozenset({N}))))


def test_marks_count_unless_forbidden():
    def f(x):
        return x * 2

    x = torch.zeros(4, 6)
    mark_dynamic(x, 0, min=2, max=9)
    found = capture(f, (x,))
    assert dict(found.facts.ranges) == {"s0": (2, 9)} and found.facts.symbols == {"s0": "x.size(0)"}
    assert not capture(f, (x,), dynamic=False).facts.symbols
    mark_static(x, 1)
    assert list(capture(f, (x,), dynamic=True).facts.symbols) == ["s0"]


def test_a_mark_that_the_program_breaks_raises():
    x = torch.zeros(4, 6)
    mark_dynamic(x, 1)
    with pytest.raises(InvalidArgumentError, match=r"x\.size\(1\) was marked dynamic, and the program needs s0 == 6"):
        capture(lambda x: x + torch.zeros(6), (x,))


def test_the_offset_of_an_input_is_not_guessed():
    """A fake tensor begins where its memory does, and a slice that is passed in doesn't."""
    found = capture(lambda x: x + x.storage_offset(), (torch.arange(10.0)[3:],))
    assert [broken.code for broken in found.breaks] == ["tracer.tensor_value"]


def test_sources_of_sizes_read_as_python():
    assert str(SizeSource(X, "stride", 1)) == "x.stride(1)" and str(SizeSource(X, "storage_offset", None)) == (
        "x.storage_offset()"
    )


def outcome(f, *args):
    """Return the type and the value of the last result, or the class and the text of the error."""
    try:
        found = f(*args)[-1]
    except Exception as error:
        return type(error), str(error)
    return type(found), found


def compiled(f, *args):
    """Return `f` by its capture with everything a symbol, and the capture."""
    found = capture(f, args, dynamic=True)
    code = link(found.code, dict.fromkeys(found.code.holes, found.graph_module))
    return types.FunctionType(code, f.__globals__, f.__name__, None, f.__closure__), found


TRUTHS = {
    "of two": lambda s, t, op: op(s > 5, t > 5),
    "and True": lambda s, t, op: op(s > 5, True),
    "False and": lambda s, t, op: op(False, s > 5),
    "and a number": lambda s, t, op: op(s > 5, 3),
    "a number and": lambda s, t, op: op(3, s > 5),
    "and a size": lambda s, t, op: op(s > 5, t),
    "a size and": lambda s, t, op: op(t, s > 5),
}
_NAMES = [
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "add",
    "sub",
    "mul",
    "floordiv",
    "truediv",
    "mod",
    "pow",
    "and_",
    "or_",
    "xor",
    "lshift",
    "rshift",
]


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("which", TRUTHS)
def test_truths_of_sizes_are_numbers_as_in_python(which, name):
    op, operands = getattr(operator, name), TRUTHS[which]

    def f(x, y):
        z = x[:2] + y[:2]
        return z, operands(x.shape[0], y.shape[0], op)

    for shapes in ((9, 9), (3, 9), (3, 3), (9, 3)):
        args = [torch.zeros(n) for n in shapes]
        mine, found = compiled(f, *args)
        assert found.graph_module is not None
        assert outcome(mine, *args) == outcome(f, *args)


def test_a_shifted_size_that_is_too_large_for_a_symbol_is_shifted():
    def f(x):
        return x[:2] + 1, x.shape[0] << 16

    huge = torch.zeros(1).expand(1 << 50)
    assert outcome(compiled(f, huge)[0], huge) == (int, 1 << 66)


@pytest.mark.parametrize("name", ["mod", "floordiv", "truediv"])
def test_an_operator_that_fails_for_the_numbers_of_this_call_raises_in_the_program(name):
    """`n - m` is a symbol, and zero in this call only."""
    function = getattr(operator, name)

    def f(x, n, m):
        try:
            return x * function(n, n - m)
        except ZeroDivisionError as error:
            return x + len(str(error))

    x = torch.arange(3.0)
    found = capture(f, (x, 5, 5), dynamic=Symbolic({}, frozenset({N, ArgumentSource("m")})), fullgraph=True)
    code = link(found.code, dict.fromkeys(found.code.holes, found.graph_module))
    made = types.FunctionType(code, f.__globals__, "f", None, f.__closure__)
    assert torch.equal(made(x, 5, 5), f(x, 5, 5))


@pytest.mark.parametrize("cls", [bytes, complex, float, int, bool, str])
def test_a_symbol_is_converted_as_its_number(cls):
    def f(x, n):
        return x + n, cls(n)

    found = capture(f, (torch.ones(3), 5), dynamic=Symbolic({}, frozenset({N})), fullgraph=True)
    code = link(found.code, dict.fromkeys(found.code.holes, found.graph_module))
    got = types.FunctionType(code, f.__globals__, "f", None, f.__closure__)(torch.ones(3), 5)[1]
    assert (type(got), got) == (cls, cls(5))
