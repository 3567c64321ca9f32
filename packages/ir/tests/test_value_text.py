"""Text of values: records of every kind come back, what is wrong is refused with its line."""

import enum

import pytest
import torch
import torch.utils._pytree as pytree
from torch._subclasses import FakeTensorMode

from intarsia_ir import (
    AliasOfInput,
    AliasOfOutput,
    AnswerSource,
    ArgumentSource,
    ArraySource,
    AttributeSource,
    CellSource,
    Constant,
    DictItemSource,
    Fresh,
    GlobalSource,
    InputItself,
    InputNumber,
    InputSpec,
    InvalidArgumentError,
    ItemSource,
    ModuleSource,
    Origin,
    Partition,
    PlainAttributeSource,
    ReferentSource,
    Role,
    Signature,
    SizeExpression,
    SizeFact,
    SizeFacts,
    SizeSource,
    TypeSource,
    UnsupportedError,
    ViewStep,
    Write,
    aten,
)
from intarsia_ir import torch as torch_dialect
from intarsia_ir.guards import OverlapGuard
from intarsia_ir.records import Halves, Joint, SavedValue, Tangent
from intarsia_ir.source_text import parse_source
from intarsia_ir.text import constants_of, parse_value, print_value
from intarsia_ir.values import Captured, Functional, Half

X = ArgumentSource("x")
SOURCES = [
    X,
    GlobalSource("layers"),
    CellSource("c"),
    ModuleSource("a.b"),
    AttributeSource(ItemSource(GlobalSource("layers"), 0), "weight"),
    ItemSource(X, "key"),
    ItemSource(X, (1, None)),
    PlainAttributeSource(X, "__dict__"),
    DictItemSource(X, -1),
    AnswerSource(X),
    TypeSource(X),
    ReferentSource(AttributeSource(X, "ref")),
    ArraySource(AttributeSource(X, "mean")),
    SizeSource(ArraySource(X), "size", 0),
    SizeSource(X, "size", 1),
    SizeSource(X, "storage_offset", None),
]


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_sources_come_back(source):
    assert parse_source(str(source)) == source


@pytest.mark.parametrize("text", ["x +", "x + 1", "f(x)(1)", "x[y]", "lambda: x"])
def test_what_reads_like_no_source_is_refused(text):
    with pytest.raises(InvalidArgumentError, match="reads like no source"):
        parse_source(text)


S0 = SizeExpression("s0*2")
SIGNATURE = Signature(
    (
        InputSpec("x", written=True, n_writes=3),
        InputSpec("w", Role.PARAMETER, AttributeSource(ArgumentSource("self"), "w"), requires_grad=True),
        InputSpec("p", Role.BUFFER, ItemSource(X, torch.float32)),  # no expression of Python fetches it
        InputSpec("q", Role.USER, ItemSource(ArgumentSource("globals"), "x")),  # reads like a global
    ),
    (
        Fresh(0, (S0, 1), requires_grad=True),
        AliasOfInput(1, ((2, S0), (3, 1), 0), (ViewStep("aten.view.default", ([6, S0],), 1),)),
        AliasOfOutput(0, ((2,), (1,), 4)),
        InputItself(2),
        Constant(float("inf")),
        Constant(torch.float16),
    ),
    (Write(0, 1, is_counted=False), Write(1, 0)),
    output_tree=pytree.tree_structure([1, {"a": (2, 3)}]),
    exit_grad_mode=False,
    symbols={"s0": InputNumber(0, "stride", 1)},
    joint=Joint((Tangent(0), Tangent(1, of_write=True)), (1,), 2, watched=(((0, True),),), raises=("it's gone",)),
)
FACTS = SizeFacts(
    {"s0": "x.size(0)", "u0": "?"},
    {"s0": (2, 64), "u0": (None, None)},
    (SizeFact("(s0 % 2) == 0", Origin("a b.py", 3, "f")), SizeFact("s0 == 6")),
    {"s0": 6},
)
GUARDS = (OverlapGuard(X, (GlobalSource("y"),), origin=Origin("m.py", 1, "f", "add_"), reason="written"),)


def graph(dialect, text="graph(%x: f32[2]) {\n  return (%x,)\n}\n"):
    return dialect.parse_ir(f"// dialect: {dialect.__name__.split('.')[-1]} 1\n{text}", fake_mode=FakeTensorMode())


def test_every_record_comes_back():
    value = Functional(graph(aten), SIGNATURE, FACTS, GUARDS)
    text = print_value(value)
    back = parse_value(text, constants=constants_of(value))
    assert (back.signature, back.facts, back.guards) == (SIGNATURE, FACTS, GUARDS)
    assert back.signature.inputs[0].n_writes == 3 and not back.signature.writes[0].is_counted, "compared apart"
    assert print_value(back) == text and text.count("symbol s0 ") == 1


class Colour(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (torch.nn.Parameter(torch.ones(2)), "x[<Parameter>]"),
        (("exp", Colour.RED, torch.float32), "x[('exp', Colour.RED, torch.float32)]"),
        (torch.device("cpu"), "x[device(type='cpu')]"),
        (Colour, "x[<class Colour>]"),
        ((1,), "x[(1,)]"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_keys_show_no_data(key, text):
    assert str(ItemSource(X, key)) == text
    assert str(DictItemSource(X, key)) == f"dict.__getitem__(x, {text[2:-1]})"


def test_the_sources_of_keys_without_a_text_come_back_through_their_objects():
    keys = [torch.nn.Parameter(torch.ones(2)) for _ in range(3)]
    inputs = tuple(InputSpec(f"p{n}", source=ItemSource(X, key)) for n, key in enumerate(keys))
    value = Functional(graph(aten), Signature(inputs))
    back = parse_value(print_value(value), constants=constants_of(value))
    assert [spec.source.key for spec in back.signature.inputs] == keys


def overlaps(n_inputs, chosen):
    inputs = tuple(InputSpec(f"x{n}", source=ItemSource(X, n)) for n in range(n_inputs))
    others = tuple(inputs[number].source for number in chosen)
    return Functional(graph(aten), Signature(inputs), guards=(OverlapGuard(X, others),))


@pytest.mark.parametrize(
    ("chosen", "text"),
    [
        (range(5), "'0:5'"),
        ([9, 0, 1, 2, 5, 7, 8], "'9, 0:3, 5, 7:9'"),
        ([1, 2, 3, 4], "(source('x[1]'), source('x[2]'), source('x[3]'), source('x[4]'))"),
    ],
)
def test_many_sources_of_inputs_are_written_as_their_numbers(chosen, text):
    value = overlaps(10, chosen)
    written = print_value(value)
    assert text in written
    back = parse_value(written, constants=constants_of(value))
    assert back.guards == value.guards and print_value(back) == written


def test_many_sources_of_others_are_written_out():
    others = tuple(ItemSource(X, n) for n in range(9))
    value = Functional(graph(aten), Signature((InputSpec("x"),)), guards=(OverlapGuard(X, others),))
    assert print_value(value).count("source('x[") == 9
    assert parse_value(print_value(value)).guards == value.guards


@pytest.mark.parametrize("numbers", ["0:11", "10", "-1:5", "5:5", "x", ""])
def test_numbers_of_no_inputs_are_refused(numbers):
    value = overlaps(10, range(10))
    text = print_value(value).replace("'0:10'", repr(numbers))
    with pytest.raises(InvalidArgumentError, match=r"line 12 .*inputs that the program lacks"):
        parse_value(text, constants=constants_of(value))


def test_a_training_step_keeps_its_marks_and_names():
    text = """// level: Half 2
input('x')
output Fresh(0)
// dialect: aten 2
graph(%x: f32[2] {kept}) {
  %early: f32[2] = aten.sin.default(%x) {kept, region=('checkpoint', 3)}
  # m.py:3 in f
  %late: f32[2] = aten.cos.default(%early) {backward}  #3
  return (%late,)
}
origins
  1 m.py
    f: 3
"""
    value = parse_value(text)
    assert isinstance(value, Half) and print_value(value) == text
    assert [node.name for node in value.graph_module.graph.nodes] == ["x", "early", "late", "output"]


def test_a_partition_comes_back_and_halves_of_other_graphs_are_refused():
    forward, backward = Half(graph(aten), SIGNATURE), Half(graph(aten), Signature())
    halves = Halves(SIGNATURE, Signature(), (SavedValue(0, True),), (0,), (1,), ((0,),), (((S0,), (1,), "f32", "cpu"),))
    value = Partition(forward, (backward,), (halves,))
    text = print_value(value)
    back = parse_value(text, constants=constants_of(value))
    assert print_value(back) == text and back.halves == value.halves
    with pytest.raises(UnsupportedError, match="other signatures"):
        print_value(Partition(backward, (backward,), (halves,)))
    lines = text.split("\n")
    for cut in ("\n".join([lines[0], *lines[2:]]), text[: text.rindex("// level")]):
        with pytest.raises(InvalidArgumentError, match="lines `halves"):
            parse_value(cut, constants=constants_of(value))


def test_examples_of_a_captured_graph_come_back():
    value = Captured(graph(torch_dialect), (torch.zeros(2, 3).t(), 4), Signature((InputSpec("x"),)))
    back = parse_value(print_value(value))
    assert back.inputs[0].shape == (3, 2) and back.inputs[0].stride() == (1, 3) and back.inputs[1] == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("graph()", "line 1 .*first line"),
        ("// partition 1\n", "line 1 .*has graphs"),
        ("// partition 1\nhalf\n// level: Half 2\n// dialect: aten 2\ngraph() { return () }", "line 2 .*half"),
        ("// level: Functional 2\ninput('x')\n", "line 1 .*a line `// dialect"),
        ("// level: Functional 2\nfact 3\n// dialect: aten 2\ngraph() { return () }", "line 2 .*string"),
        ("// level: Functional 2\ninput('x'\n// dialect: aten 2\ngraph() { return () }", "line 3 .*expected"),
        ("// level: Half 2\n// dialect: aten 2\ngraph(%x) {\n  return (%y,)\n}", "line 4 .*%y"),
        ("// level: Half 2\noutput Nothing(0)\n// dialect: aten 2\ngraph() { return () }", "line 2 .*Nothing"),
    ],
)
def test_what_can_not_be_read_is_refused_with_its_line(text, message):
    with pytest.raises(InvalidArgumentError, match=message):
        parse_value(text)


def test_another_version_is_refused():
    with pytest.raises(UnsupportedError, match="level Functional 3; this reader takes Captured 2, Recorded 2"):
        parse_value("// level: Functional 3\n// dialect: aten 2\ngraph() { return () }")


CAPTURED = """\
// level: Captured 2
example f32[4, 2]
example f32[2]+4 of 0
// dialect: torch 2
graph(%x: f32[4, 2], %y: f32[2]) {
  %z: f32[4, 2] = torch.add(%x, %y)
  return (%z,)
}
"""


def test_examples_share_the_memory_that_inputs_share():
    value = parse_value(CAPTURED)
    first, second = value.inputs
    assert first.untyped_storage()._cdata == second.untyped_storage()._cdata
    assert (second.storage_offset(), tuple(second.shape), second.stride()) == (4, (2,), (1,))
    assert print_value(value) == CAPTURED


@pytest.mark.parametrize("owner", [1, 5])
def test_an_example_shares_memory_with_one_before_it_only(owner):
    with pytest.raises(InvalidArgumentError, match=f"example {owner} is no tensor before this one"):
        parse_value(CAPTURED.replace("of 0", f"of {owner}"))


@pytest.mark.parametrize("line", ["", "symbolic\n"], ids=["static", "symbolic"])
def test_a_text_tells_whether_sizes_could_be_symbols(line):
    asked = []

    def thaw(facts, *, symbolic):
        asked.append((facts, symbolic))
        return FakeTensorMode(), None

    parse_value(CAPTURED.replace("example", f"{line}example", 1), thaw=thaw)
    assert asked == [(SizeFacts(), bool(line))]
