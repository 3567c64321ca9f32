"""Random FX(aten, effects) graphs: functionalized, they verify, keep the meaning, and the given graph is unchanged."""

from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_functionalizer import functionalize, to_aten
from intarsia_ir import aten, meta
from intarsia_ir.errors import UnsupportedError
from intarsia_testkit.effect_programs import effect_programs
from intarsia_testkit.fired import Tally

WRITES = Tally("functionalizer: writes rewritten")
OUTPUTS = Tally("functionalizer: kinds of outputs", ["AliasOfInput", "AliasOfOutput", "Fresh", "InputItself"])

# what is refused by design; everything else has to work
REFUSED = {"functionalize.as_strided", "functionalize.metadata", "functionalize.overlap"}
EXACT = {"rtol": 0, "atol": 0}


def functionalized(program, **options):
    try:
        return functionalize(program, **options)
    except UnsupportedError as error:
        assert error.code in REFUSED, error
        WRITES.count(f"(refused: {error.code})")
        return None


@settings(derandomize=True, deadline=None, max_examples=80)
@given(effect_programs(max_nodes=14))
def test_functional_and_equal(check, program):
    gm = program.graph_module
    before = aten.print_ir(gm)
    done = functionalized(gm)
    assert aten.print_ir(gm) == before
    if done is None:
        return
    aten.verify(done.graph_module, functional=True, values=True)
    known = {origin for node in gm.graph.nodes for origin in meta.origins(node)}
    assert all(set(meta.origins(node)) <= known for node in done.graph_module.graph.nodes)
    check(program.function, done, program.inputs(1), **EXACT)
    for node in gm.graph.nodes:
        for written in aten.written_nodes(node):
            WRITES.count(f"{node.target} on {written.op}")
    for spec in done.signature.outputs:
        OUTPUTS.count(type(spec).__name__)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(effect_programs(max_nodes=10))
def test_recorded_first(check, program):
    done = functionalized(to_aten(program.function, program.inputs(0)))
    if done is not None:
        aten.verify(done.graph_module, functional=True, values=True)
        check(program.function, done, program.inputs(1), rtol=1e-4, atol=1e-4)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(effect_programs(max_nodes=10), st.integers(0, 4))
def test_fuel(check, program, fuel):
    """The first writes are gone, the others are effects, and the meaning is the same."""
    done = functionalized(program.graph_module, fuel=fuel)
    if done is not None:
        check(program.function, done, program.inputs(1), **EXACT)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(effect_programs(max_nodes=10))
def test_twice_is_once(program):
    once = functionalized(program.graph_module)
    if once is not None:
        twice = functionalize(once)
        assert aten.print_ir(twice.graph_module) == aten.print_ir(once.graph_module)
        assert (twice.signature.writes, twice.signature.outputs) == (once.signature.writes, once.signature.outputs)


def test_every_kind_of_output_occurred():
    assert not OUTPUTS.missing()
