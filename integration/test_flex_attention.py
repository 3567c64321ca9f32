"""`flex_attention` and its block masks: captured whole, with the user's functions in the graph, equal to eager's."""

from __future__ import annotations

import functools
import warnings

import pytest
import torch
import torch.nn.attention.flex_attention as flex
from torch.nn.attention.flex_attention import (
    AuxRequest,
    BlockMask,
    and_masks,
    create_block_mask,
    create_mask,
    flex_attention,
    or_masks,
)

import intarsia
from intarsia_loops import from_fx
from intarsia_loops.program import Extern
from intarsia_runtime import detect_target

STRICT = {"options": {"on_error": "raise", "verify_each": True}, "fullgraph": True}
on_cpu = functools.partial(create_block_mask, device="cpu", BLOCK_SIZE=16)


@pytest.fixture(autouse=True)
def fresh():
    """Forget what was compiled, by us and by torch, whose eager `flex_attention` compiles."""
    intarsia.reset()
    torch.compiler.reset()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # eager says that it isn't compiled
        yield


@pytest.fixture
def gradients_on_cpu(monkeypatch):
    """Eager refuses inputs with gradients on a CPU, where the operator below has them."""
    monkeypatch.setattr(flex, "_validate_device", lambda *tensors: None)


def tensors(batch=1, heads=2, queries=32, keys=None, width=16, kv_heads=None, dtype=torch.float32):
    keys, kv_heads = keys or queries, kv_heads or heads
    shapes = [(batch, heads, queries, width), (batch, kv_heads, keys, width), (batch, kv_heads, keys, width)]
    return [torch.randn(shape, dtype=dtype) for shape in shapes]


def as_exact(found, program, inputs):
    """Check that a result in a half type is about as near to that of doubles as eager's, which rounds elsewhere."""
    exact, expected = program(*[x.double() for x in inputs]), program(*inputs)
    assert (found.dtype, found.stride()) == (expected.dtype, expected.stride())
    ours, theirs = ((made.double() - exact).abs() for made in (found, expected))
    assert ours.max() <= 1.5 * theirs.max() and ours.mean() <= 1.1 * theirs.mean()


def agree(program, *calls, **how):
    """Compare a compiled program with eager's on each of some calls: values and strides."""
    fast = intarsia.compile(program, **{**STRICT, **how})
    for inputs in calls:
        found, expected = fast(*inputs), program(*inputs)
        torch.testing.assert_close(found, expected)
        for mine, other in zip(leaves(found), leaves(expected), strict=True):
            assert mine.stride() == other.stride()
    return fast


def leaves(made):
    return [x for x in (made if isinstance(made, tuple) else (made,)) if isinstance(x, torch.Tensor)]


def agree_on_gradients(program, inputs, others=(), tolerance=1e-5):
    """Compare gradients of inputs, and of tensors that the program reads from outside."""
    wanted = [*[x for x in inputs if x.is_floating_point()], *others]
    for x in wanted:
        x.requires_grad_()
    made = [intarsia.compile(program, **STRICT)(*inputs), program(*inputs)]
    torch.testing.assert_close(*made)
    weights = [torch.randn_like(x) for x in leaves(made[0])]
    gradients = [
        torch.autograd.grad(sum((x * w).sum() for x, w in zip(leaves(m), weights, strict=True)), wanted) for m in made
    ]
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance)
        assert other.abs().max() > 1e-3  # else nothing was compared


# ---- score and mask functions


def causal(b, h, i, j):
    return i >= j


def near(b, h, i, j):
    return (i - j).abs() <= 5


def prefix(b, h, i, j):
    return j < 7


def by_batch(b, h, i, j):
    return (j < 3 + 4 * b) & (i >= j - h)


def nothing_in_odd_rows(b, h, i, j):
    return i % 2 == 0


def alibi(score, b, h, i, j):
    return score + (j - i) * torch.exp2(-(h + 1.0))


def soft_cap(score, b, h, i, j):
    return 3.0 * torch.tanh(score / 3.0)


def masked_by_score(score, b, h, i, j):
    return torch.where(i - j < 9, score, -float("inf"))


def of_two(score, b, h, i, j):
    return soft_cap(alibi(score, b, h, i, j), b, h, i, j)


MASKS = [causal, near, and_masks(causal, near), or_masks(causal, prefix), by_batch, nothing_in_odd_rows]
SCORES = [alibi, soft_cap, masked_by_score, of_two]


@pytest.mark.parametrize("mask", MASKS, ids=lambda f: f.__name__)
def test_masks_made_inside(mask):
    def program(q, k, v):
        blocks = on_cpu(mask, q.shape[0], q.shape[1], q.shape[2], k.shape[2])
        return flex_attention(q, k, v, block_mask=blocks)

    agree(program, tensors(2, 2), tensors(2, 2, queries=20, keys=36))


@pytest.mark.parametrize("mask", MASKS, ids=lambda f: f.__name__)
def test_masks_made_outside(mask):
    def program(q, k, v, blocks):
        return flex_attention(q, k, v, block_mask=blocks)

    agree(program, [*tensors(2, 2), on_cpu(mask, 2, 2, 32, 32)])


@pytest.mark.parametrize("score", SCORES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("mask", [None, causal])
def test_scores(score, mask):
    def program(q, k, v):
        blocks = None if mask is None else on_cpu(mask, None, None, 32, 32)
        return flex_attention(q, k, v, score_mod=score, block_mask=blocks)

    agree(program, tensors(2, 3))


def test_nothing_but_attention():
    agree(flex_attention, tensors(2, 3), tensors(2, 3, queries=5, keys=9))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("score", [None, alibi, soft_cap])
def test_types(dtype, score):
    def program(q, k, v):
        return flex_attention(q, k, v, score_mod=score, block_mask=on_cpu(causal, None, None, 32, 32), scale=0.2)

    if score is None and dtype.itemsize == 2:
        inputs = tensors(2, 2, dtype=dtype)
        as_exact(intarsia.compile(program, **STRICT)(*inputs), program, inputs)
    else:
        agree(program, tensors(2, 2, dtype=dtype))


def test_what_is_read_from_outside_may_change():
    """A mask of documents, and a table of biases: read at every call, and seen when they are others."""

    def program(q, k, v, documents, table):
        def same(b, h, i, j):
            return (documents[b, i] == documents[b, j]) & (i >= j)

        def biased(score, b, h, i, j):
            return score + table[h, (i - j).clamp(-7, 7) + 7] * table[0, 0]

        blocks = on_cpu(same, q.shape[0], None, q.shape[2], q.shape[2])
        return flex_attention(q, k, v, score_mod=biased, block_mask=blocks)

    def others():
        return [torch.randint(0, 3, (2, 32)).sort(-1).values, torch.randn(2, 15)]

    agree(program, [*tensors(2, 2), *others()], [*tensors(2, 2), *others()])


def test_a_mask_function_that_holds_tensors():
    """A block mask from outside: its function is guarded as any other, and the tensors that it holds are inputs."""

    def masked(lengths):
        def short(b, h, i, j):
            return j < lengths[b]

        return on_cpu(short, 2, None, 32, 32)

    def program(q, k, v, blocks):
        return flex_attention(q, k, v, block_mask=blocks)

    inputs = tensors(2, 2)
    lengths = torch.tensor([9, 20])
    fast = agree(program, *[[*inputs, masked(ends)] for ends in (lengths, torch.tensor([32, 1]))])
    blocks = masked(lengths)
    before = fast(*inputs, blocks).clone()
    lengths.fill_(3)
    after = fast(*inputs, blocks)
    torch.testing.assert_close(after, program(*inputs, blocks))
    assert not torch.equal(before, after)
    agree(program, [*inputs, on_cpu(causal, None, None, 32, 32)])
    torch.testing.assert_close(fast(*inputs, on_cpu(near, 1, 1, 32, 32)), program(*inputs, on_cpu(near, 1, 1, 32, 32)))


def test_a_parts_mask_with_its_function_set_again():
    blocks = on_cpu(causal, None, None, 32, 32)

    def program(q, k, v, start):
        def later(b, h, i, j):
            return causal(b, h, i + start, j)

        part = blocks[:, :, 1:]
        part.mask_mod = later
        part.seq_lengths = (16, 32)
        return flex_attention(q, k, v, block_mask=part)

    agree(program, [*tensors(1, 2, queries=16, keys=32), torch.tensor(16)])


@pytest.mark.parametrize("made", ["mask", "blocks"])
def test_what_masks_are(made):
    def program(x):
        n = x.shape[0]
        if made == "mask":
            return create_mask(by_batch, 2, 3, n, n + 4, device="cpu"), create_mask(
                masked_by_score, None, 2, n, n, device="cpu"
            )
        blocks = on_cpu(causal, 2, None, n, n + 4)
        return tuple(x for x in blocks.as_tuple() if isinstance(x, torch.Tensor))

    agree(program, [torch.ones(40)])


def test_blocks_are_skipped_nowhere():
    """A list of blocks without a mask function: eager's reads the function only, and so does the graph."""
    number, indices = torch.ones(1, 1, 2, dtype=torch.int32), torch.zeros(1, 1, 2, 2, dtype=torch.int32)

    def program(q, k, v):
        return flex_attention(q, k, v, block_mask=BlockMask.from_kv_blocks(number, indices, BLOCK_SIZE=16))

    agree(program, tensors(1, 2))


@pytest.mark.parametrize("heads", [1, 2])
def test_grouped_heads(heads):
    def program(q, k, v):
        return flex_attention(q, k, v, score_mod=alibi, enable_gqa=True)

    agree(program, tensors(2, 4, kv_heads=heads))


def test_one_batch_of_keys_for_all():
    def program(q, k, v, blocks):
        return flex_attention(q, k, v, block_mask=blocks)

    q, k, v = tensors(3, 2)
    agree(program, [q, k[:1], v[:1], on_cpu(by_batch, 3, None, 32, 32)])


@pytest.mark.parametrize("layout", [(0, 2, 1, 3), (2, 1, 0, 3), (0, 1, 3, 2)])
def test_results_lie_as_queries(layout):
    back = [layout.index(n) for n in range(4)]

    def program(q, k, v):
        return flex_attention(q, k, v, score_mod=soft_cap)

    agree(program, [x.permute(layout).contiguous().permute(back) for x in tensors(2, 3)])


def test_sums_of_exponentials():
    def program(q, k, v):
        blocks = on_cpu(nothing_in_odd_rows, None, None, 32, 32)
        made, lse = flex_attention(q, k, v, block_mask=blocks, return_lse=True)
        again, aux = flex_attention(q, k, v, score_mod=alibi, return_aux=AuxRequest(lse=True))
        return made, lse, again, aux.lse

    agree(program, tensors(2, 2), tensors(2, 2, dtype=torch.bfloat16))


def test_options_of_kernels_are_left_to_kernels():
    def program(q, k, v):
        return flex_attention(q, k, v, score_mod=alibi, kernel_options={"BLOCK_M": 64, "PRESCALE_QK": True})

    agree(program, tensors())


def test_autocast():
    def program(q, k, v):
        with torch.autocast("cpu", torch.bfloat16):
            return flex_attention(q, k, v, score_mod=alibi)

    agree(program, tensors())


@pytest.mark.parametrize("inside", [True, False])
def test_open_lengths(inside):
    """One graph for all lengths; so are ints that are no sizes, such as a mask's length."""

    def program(q, k, v, documents, blocks):
        def same(b, h, i, j):
            return documents[i] == documents[j]

        blocks = on_cpu(same, None, None, q.shape[2], q.shape[2]) if inside else blocks
        return flex_attention(q, k, v, score_mod=alibi, block_mask=blocks)

    def call(n):
        return [*tensors(2, 2, queries=n), torch.arange(n) // 9, None if inside else on_cpu(causal, None, None, n, n)]

    agree(program, *map(call, (48, 40, 96, 65)), dynamic=True)
    assert intarsia.stats().graphs == 1


def test_a_number_of_the_program(monkeypatch):
    # the compiler that eager calls takes no floats that change, in torch 2.15
    monkeypatch.setattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)

    def windowed(q, k, v, size, cap):
        def window(b, h, i, j):
            return (i - j).abs() < size

        def capped(score, b, h, i, j):
            return cap * torch.tanh(score / cap)

        return flex_attention(q, k, v, score_mod=capped, block_mask=on_cpu(window, None, None, 32, 32))

    agree(windowed, *[[*tensors(), size, cap] for size, cap in ((4, 2.0), (7, 5.0), (9, 5.5))])


# ---- gradients


def test_gradients_of_what_scores_read():
    """Eager has these on a CPU too."""
    table, slope = torch.randn(2, 63), torch.randn(2)

    def program(q, k, v):
        def biased(score, b, h, i, j):
            return score * slope[h] + table[h, i - j + 31]

        return flex_attention(q, k, v, score_mod=biased, block_mask=on_cpu(causal, None, None, 32, 32))

    q, k, v = tensors(2, 2)
    agree_on_gradients(lambda: program(q, k, v), [], [table, slope])


@pytest.mark.parametrize("score", [None, *SCORES], ids=str)
@pytest.mark.parametrize("mask", [None, causal, nothing_in_odd_rows], ids=str)
def test_gradients(score, mask, gradients_on_cpu):
    def program(q, k, v):
        blocks = None if mask is None else on_cpu(mask, None, None, 32, 32)
        return flex_attention(q, k, v, score_mod=score, block_mask=blocks, return_lse=score is None)

    agree_on_gradients(program, tensors(2, 2))


def test_gradients_of_groups_and_half_types(gradients_on_cpu):
    table = torch.randn(4, 32, dtype=torch.bfloat16)

    def program(q, k, v):
        def biased(score, b, h, i, j):
            return score + table[h, j]

        return flex_attention(q, k, v, score_mod=biased, enable_gqa=True)

    agree_on_gradients(program, tensors(2, 4, kv_heads=2, dtype=torch.bfloat16), [table], tolerance=3e-2)


# ---- what eager refuses


def shorter(q, k, v):
    return flex_attention(q, k, v, block_mask=on_cpu(causal, None, None, 16, 16))


def grouped(q, k, v):
    return flex_attention(q[:, :1], k, v)


def of_a_part(q, k, v):
    return flex_attention(q, k, v, block_mask=on_cpu(causal, None, None, 32, 32)[:, :, 0])


def graded(q, k, v):
    return flex_attention(q.requires_grad_(), k, v)


def with_maxima(q, k, v):
    return flex_attention(q, k, v, return_aux=AuxRequest(max_scores=True))


@pytest.mark.parametrize("program", [shorter, grouped, of_a_part, graded, with_maxima], ids=lambda f: f.__name__)
def test_what_eager_refuses(program):
    with pytest.raises(Exception) as expected:
        program(*tensors())
    with pytest.raises(type(expected.value)) as found:
        intarsia.compile(program)(*tensors())
    assert str(found.value) == str(expected.value)


# ---- what it becomes


def library_calls(program, inputs):
    """Return what a compiled call leaves to libraries, and how many kernels are generated."""
    called = []

    def look(gm):
        called.extend(str(item.target).split(".")[1] for item in from_fx(gm).items if isinstance(item, Extern))
        return gm

    # whether a row is computed twice or kept depends on how many threads share the rows
    target = detect_target(threads=2)
    pipeline = intarsia.default_pipeline(target=target).after("lower", look)
    compiled = intarsia.compile(program, pipeline=pipeline, fullgraph=True, options={"on_error": "raise"})
    if inputs[0].dtype.itemsize == 2:
        as_exact(compiled(*inputs), program, inputs)
    else:
        torch.testing.assert_close(compiled(*inputs), program(*inputs))
    return called, intarsia.stats().kernels_generated


@pytest.mark.parametrize(
    ("mask", "score", "dtype", "n_kernels"),
    [
        (None, None, torch.float32, 0),
        (causal, None, torch.bfloat16, 0),
        (near, None, torch.float32, 1),
        (near, None, torch.bfloat16, 1),
        (causal, alibi, torch.float32, 1),
    ],
    ids=str,
)
def test_masks_and_added_scores_are_one_library_call(mask, score, dtype, n_kernels):
    """The lists of blocks, which nobody reads, aren't computed."""

    def program(q, k, v):
        blocks = None if mask is None else on_cpu(mask, None, None, 32, 32)
        return flex_attention(q, k, v, score_mod=score, block_mask=blocks)

    called, made = library_calls(program, tensors(2, 2, dtype=dtype))
    assert (called, made) == (["_scaled_dot_product_flash_attention_for_cpu"], n_kernels)


def test_queries_of_another_layout_cost_no_copy():
    def program(q, k, v):
        return flex_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), block_mask=blocks)

    blocks = on_cpu(causal, None, None, 32, 32)
    called, made = library_calls(program, [x.transpose(1, 2).contiguous() for x in tensors(2, 2)])
    assert (called, made) == (["_scaled_dot_product_flash_attention_for_cpu"], 0)


def test_other_scores_are_one_kernel_between_two_products():
    called, made = library_calls(lambda q, k, v: flex_attention(q, k, v, score_mod=of_two), tensors(2, 2))
    assert (called, made) == (["bmm", "bmm"], 1)
