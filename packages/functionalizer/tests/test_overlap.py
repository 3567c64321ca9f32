"""Inputs that share memory: guarded where that would make the graph wrong, refused where they do at capture."""

import pytest
import torch

from intarsia_functionalizer import functionalize, to_aten
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.guards import OverlapGuard
from intarsia_ir.records import ArgumentSource, AttributeSource, InputSpec, Role, Signature


def guards(program, *inputs, **options):
    return [
        (str(g.source), [str(s) for s in g.others]) for g in functionalize(to_aten(program, inputs, **options)).guards
    ]


def t():
    return torch.zeros(4)


def test_what_is_read_later_must_be_apart():
    def program(x, y, z):
        before = z * 2
        x.add_(1)
        return before + y

    assert guards(program, t(), t(), t()) == [("arg0", ["arg1"])], "z was read before x changed"


def test_what_is_read_by_the_write_must_be_apart():
    """Eager refuses partial overlap there."""
    assert guards(lambda x, y: x.add_(y), t(), t()) == [("arg0", ["arg1"])]


def test_written_inputs_must_be_apart_each_pair_once():
    def program(x, y):
        y.add_(1)
        x.add_(1)

    assert guards(program, t(), t()) == [("arg0", ["arg1"])]


def test_nothing_written_nothing_guarded():
    assert guards(lambda x, y: x + y, t(), t()) == []
    assert guards(lambda x, y: (x.add_(1), y.view(2, 2))[1], t(), t()) == [], "views of y are made from y itself"


def test_sources_come_from_the_signature():
    source = AttributeSource(ArgumentSource("self"), "count")
    given = Signature((InputSpec("x"), InputSpec("count", Role.BUFFER, source)))

    def program(x, count):
        count.add_(1)
        return x * count

    (guard,) = functionalize(to_aten(program, (t(), t()), signature=given)).guards
    assert guard == OverlapGuard(source, (ArgumentSource("arg0"),), reason=guard.reason)


def add_and_read(x, y):
    x.add_(1)
    return y * 2


@pytest.mark.parametrize(
    "make", [lambda x: x[:], lambda x: x.view(2, 2), lambda x: x[1:3]], ids=["same", "shape", "part"]
)
def test_overlap_at_capture_is_refused(make):
    x = t()
    with pytest.raises(UnsupportedError, match=r"functionalize\.overlap"):
        functionalize(to_aten(add_and_read, (x, make(x))))


def test_neighbours_in_one_storage_are_apart(check):
    def program(x, y):
        x.add_(1)
        return y * 2

    whole = torch.arange(8.0)
    inputs = whole[:4], whole[4:]
    done = functionalize(to_aten(program, inputs))
    check(lambda *args: [program(*args)], done, inputs)


def test_overlap_that_does_no_harm_is_taken(check):
    x = t()
    inputs = x, x.view(2, 2)
    done = functionalize(to_aten(lambda x, y: [x * 2, y + 1], inputs))
    check(lambda x, y: [x * 2, y + 1], done, inputs)
