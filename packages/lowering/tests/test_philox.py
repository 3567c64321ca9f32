"""Random numbers as nests: Philox by its published numbers, the ops by their distributions."""

import pytest
import torch

import intarsia_loops
import intarsia_lowering
from intarsia_ir.aten import parse_ir
from intarsia_ir.errors import InvalidArgumentError
from intarsia_loops import loops
from intarsia_loops.graph import to_fx
from intarsia_loops.index import axis, lift, row_major
from intarsia_loops.program import Buffer, Extern, Nest, Program, TensorRef, index_value, load
from intarsia_lowering import philox

MASK = (1 << 32) - 1


def reference(seed, counter):
    """Philox 4x32-10 on Python numbers."""
    k, x = [seed & MASK, seed >> 32 & MASK], [counter & MASK, counter >> 32 & MASK, 0, 0]
    for _ in range(10):
        a, b = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(b >> 32) ^ x[1] ^ k[0], b & MASK, (a >> 32) ^ x[3] ^ k[1], a & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return x


def words(seed, n):
    """The four words of each of n elements, by the interpreter of the loops dialect."""
    i = axis("i0", n)
    made = philox.words(load("seed", (), "i64"), index_value(lift(i)))
    nests = [Nest(f"w{k}", (i,), (), "map", w, "i64") for k, w in enumerate(made)]
    shape = (lift(n),)
    buffers = {"seed": Buffer((), (), "i64"), **{w.out: Buffer(shape, row_major(shape), "i64") for w in nests}}
    outputs = tuple(TensorRef(w.out, shape, row_major(shape), lift(0)) for w in nests)
    return loops.interpret(to_fx(Program(buffers, ("seed",), tuple(nests), outputs)), torch.tensor(seed))


def test_words_are_the_published_ones():
    # Random123's known answer for a key and a counter of zeros
    assert [int(w[0]) for w in words(0, 1)] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@pytest.mark.parametrize("seed", [1, MASK, (1 << 63) - 2, 0x0123456789ABCDEF])
def test_words_are_those_of_the_reference(seed):
    found = words(seed, 40)
    assert [[int(w[k]) for w in found] for k in range(40)] == [reference(seed, k) for k in range(40)]


def lowered(call, out="f32[100, 100]", **options):
    aten = parse_ir(f"// dialect: aten 2\ngraph(%x: f32[100, 100]) {{\n  %0: {out} = {call}\n  return (%0,)\n}}\n")
    return intarsia_lowering.lower(aten, check=False, **options)


@pytest.mark.parametrize(
    ("call", "mean", "spread"),
    [
        ("aten.rand_like.default(%x)", 0.5, 12**-0.5),
        ("aten.randn_like.default(%x)", 0.0, 1.0),
        ("aten.bernoulli.p(%x, 0.25)", 0.25, 0.1875**0.5),
        ("aten.rand.default([100, 100])", 0.5, 12**-0.5),
    ],
)
def test_distributions(call, mean, spread):
    gm = lowered(call, rng="philox")
    items = intarsia_loops.from_fx(gm).items
    assert [str(i.target) for i in items if isinstance(i, Extern)] == ["aten.randint.low"]
    torch.manual_seed(0)
    first, second = (loops.interpret(gm, torch.zeros(100, 100))[0] for _ in range(2))
    assert abs(first.mean() - mean) < 4 * spread / 100 and abs(first.std() - spread) < 0.03
    assert not torch.equal(first, second)
    torch.manual_seed(0)
    assert torch.equal(loops.interpret(gm, torch.zeros(100, 100))[0], first)


def test_a_half_type_never_gets_one():
    gm = lowered("aten.rand_like.default(%x, dtype=bf16)", "bf16[100, 100]", rng="philox")
    found = loops.interpret(gm, torch.zeros(100, 100))[0]
    assert found.dtype == torch.bfloat16 and found.max() < 1 and found.unique().numel() > 200


def test_by_default_random_ops_stay_calls():
    (item,) = intarsia_loops.from_fx(lowered("aten.rand_like.default(%x)")).items
    assert isinstance(item, Extern)
    with pytest.raises(InvalidArgumentError, match="did you mean"):
        lowered("aten.rand_like.default(%x)", rng="filox")
