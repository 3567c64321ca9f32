"""Every row of the default table computes what its op computes, in parts that are not rows themselves."""

import pytest
import torch

from intarsia_functionalizer import default_decompositions
from intarsia_functionalizer.halves import STEPWISE
from intarsia_ir import aten, eager, meta
from intarsia_recorder import EagerMode, record
from intarsia_shapes import ShapeEnv, fake_mode, fakeify

ops = torch.ops.aten
R = torch.randn


def P(*shape):
    return torch.rand(*shape) * 0.98 + 0.01


# op -> arguments; special values where an op has special cases
EDGES = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 3e-3, 40.0, -40.0, float("inf"), -float("inf"), float("nan")])
SAMPLES = {
    ops._prelu_kernel.default: (R(2, 4, 3), P(1, 4, 1)),
    ops.celu.default: (EDGES, 1.3),
    ops.glu.default: (R(4, 6), -1),
    ops.hardshrink.default: (EDGES, 0.5),
    ops.heaviside.default: (EDGES, R(12)),
    ops.isneginf.default: (EDGES,),
    ops.isposinf.default: (EDGES,),
    ops.logaddexp2.default: (EDGES, EDGES.flip(0)),
    ops.logit.default: (P(5), 0.1),
    ops.sinc.default: (EDGES[:9],),
    ops.softshrink.default: (EDGES, 0.5),
    ops.special_entr.default: (EDGES,),
    ops.special_xlog1py.default: (EDGES, P(12)),
    ops.special_xlog1py.other_scalar: (EDGES, 2.0),
    ops.special_xlog1py.self_scalar: (2.0, EDGES),
    ops.binary_cross_entropy.default: (P(4), P(4), P(4), 1),
    ops.binary_cross_entropy_with_logits.default: (R(4), P(4), None, P(4), 1),
    ops.huber_loss.default: (R(4), R(4), 1, 0.7),
    ops.mse_loss.default: (R(4), R(4), 2),
    ops.smooth_l1_loss.default: (R(4), R(4), 1, 0.5),
    ops.soft_margin_loss.default: (R(4), R(4).sign(), 1),
    ops.nll_loss_forward.default: (R(4, 3), torch.tensor([0, 2, -100, 2]), P(3), 1, -100),
    ops.nll_loss2d_forward.default: (R(2, 3, 2, 2), torch.tensor([[[0, 2], [1, -100]]] * 2), P(3), 1, -100),
    ops._log_softmax_backward_data.default: None,
    ops._softmax_backward_data.default: None,
    ops.native_dropout_backward.default: (R(4), R(4) > 0, 2.0),
    ops.addmv.default: (R(3), R(3, 4), R(4)),
    ops.dist.default: (R(4, 3), R(3), 2.0),
    ops.mv.default: (R(3, 4), R(4)),
    ops._chunk_cat.default: ([R(4, 2), R(3, 3)], 0, 2),
    ops._unsafe_masked_index.default: (R(4), torch.tensor([True, False]), [torch.tensor([3, 0])], 0),
    ops.im2col.default: (R(1, 2, 5, 6), [2, 3], [1, 1], [1, 0], [2, 1]),
    ops.isin.Scalar_Tensor: (2, torch.arange(3)),
    ops.isin.Tensor_Scalar: (torch.arange(3), 2),
    ops.isin.Tensor_Tensor: (torch.arange(5), torch.tensor([1, 3])),
    ops.linalg_cross.default: (R(4, 3), R(4, 3)),
    ops.reflection_pad1d.default: (R(2, 5), [2, 1]),
    ops.reflection_pad2d.default: (R(2, 4, 5), [2, 1, 0, 3]),
    ops.reflection_pad3d.default: (R(2, 3, 4, 5), [2, 1, 0, 3, 1, 1]),
    ops.replication_pad1d.default: (R(2, 5), [2, 6]),
    ops.replication_pad2d.default: (R(2, 4, 5), [2, 1, 0, 3]),
    ops.replication_pad3d.default: (R(2, 3, 4, 5), [2, 1, 0, 3, 1, -1]),
    ops.take.default: (R(2, 3), torch.tensor([[5, 0], [-1, 2]])),
    ops.grid_sampler_2d.default: (R(1, 2, 4, 5), P(1, 3, 3, 2) * 2.4 - 1.2, 0, 0, False),
    ops.upsample_bilinear2d.default: (R(1, 2, 4, 5), [7, 3], True),
    ops.upsample_linear1d.default: (R(1, 2, 5), [7], False, 1.4),
    ops._batch_norm_no_update.default: (R(4, 3), P(3), R(3), R(3), P(3), 0.1, 1e-5),
    ops._native_batch_norm_legit.no_stats: (R(4, 3, 5), P(3), R(3), True, 0.1, 1e-5),
    ops._native_batch_norm_legit.default: (R(4, 3, 5), P(3), R(3), R(3), P(3), True, 0.1, 1e-5),
    ops.native_batch_norm.default: (R(4, 3, 5), P(3), R(3), R(3), P(3), False, 0.1, 1e-5),
    ops.native_group_norm.default: None,
    ops.cudnn_batch_norm.default: None,
    ops._safe_softmax.default: (torch.tensor([[1.0, 2.0], [-float("inf"), -float("inf")]]), -1),
    ops._weight_norm_interface.default: (R(4, 3), R(4, 1), 0),
    ops.addr.default: (R(4, 6), R(4), R(6)),
    ops.count_nonzero.default: (EDGES,),
    ops.dot.default: (R(5), R(5)),
    ops.nansum.default: (EDGES[[0, 4, 11]],),
    ops.norm.Scalar: (R(4, 6), 2),
    ops.norm.ScalarOpt_dim: (R(4, 6), 1, [1], True),
    ops.norm.ScalarOpt_dim_dtype: None,
    ops.norm.ScalarOpt_dtype: None,
    ops.renorm.default: (R(4, 6), 2.0, 0, 1.0),
    ops.block_diag.default: ([R(2, 3), R(1, 2)],),
    ops.channel_shuffle.default: (R(2, 4, 3, 3), 2),
    ops.diag_embed.default: (R(3, 4), 1),
    ops.pixel_shuffle.default: (R(2, 8, 3, 3), 2),
    ops.pixel_unshuffle.default: (R(2, 2, 4, 4), 2),
    ops.rot90.default: (R(3, 4), 3),
    ops.trace.default: (R(4, 5),),
    ops.unsafe_split.Tensor: (R(5, 2), 2),
    ops.unsafe_split_with_sizes.default: (R(5, 2), [1, 4]),
    ops.linspace.default: (0, 1, 7),
    ops.tril_indices.default: (4, 3, 1),
    ops.triu_indices.default: (4, 3, -1),
    ops.zero.default: (R(3),),
}
# these take types, or need a GPU; their relatives above stand for them
RELATIVES = {op for op, arguments in SAMPLES.items() if arguments is None}


def functional_rows():
    rows = [op for op in default_decompositions() if not op._schema.is_mutable or op in SAMPLES]
    apart = ("aten::_foreach_", "aten::_fused_", "aten::vdot")  # which have tests of their own
    return [op for op in rows if not op._schema.name.startswith(apart)]


def test_every_row_has_a_sample():
    assert set(functional_rows()) == set(SAMPLES)


def copies(arguments):
    return torch.utils._pytree.tree_map(lambda a: a.clone() if isinstance(a, torch.Tensor) else a, arguments)


def leaves(value):
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if leaf is not None]


def cast(arguments, dtype):
    def to(leaf):
        return leaf.to(dtype) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf

    return torch.utils._pytree.tree_map(to, copies(arguments))


def refuses(op, arguments):
    """Tell whether eager has no kernel for the arguments."""
    try:
        op(*copies(arguments))
    except NotImplementedError:
        return True
    return False


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("op", [op for op in SAMPLES if op not in RELATIVES], ids=str)
def test_parts_equal_the_whole(op, dtype):
    table = default_decompositions()
    arguments = cast(SAMPLES[op], dtype)
    if refuses(op, arguments):
        pytest.skip("this version of torch has no kernel for the type")
    recorded = record(lambda *args: op(*args), arguments, decompositions=table)
    found = [n.target for n in recorded.graph_module.graph.nodes if n.op == "call_function"]
    assert found and not set(found) & set(table)
    results = aten.interpret(recorded.graph_module, *torch.utils._pytree.tree_leaves(copies(arguments)))
    expected = leaves(op(*copies(arguments)))
    exact = leaves(op(*cast(arguments, torch.float64)))
    for actual, wanted, ideal in zip(results, expected, exact, strict=True):
        assert (actual.dtype, actual.stride()) == (wanted.dtype, wanted.stride())
        if dtype is torch.bfloat16 and wanted.dtype is dtype:
            no_worse(actual, wanted, ideal)
        else:
            torch.testing.assert_close(actual, wanted, equal_nan=True)


def no_worse(actual, wanted, ideal):
    """The error against float64 is at most three times that of eager, or a unit in the last place."""
    torch.testing.assert_close(actual.isfinite(), wanted.isfinite())
    finite = wanted.isfinite()
    ours, eagers = (actual.double() - ideal)[finite].abs(), (wanted.double() - ideal)[finite].abs()
    unit = torch.finfo(torch.bfloat16).eps * ideal[finite].abs()
    assert (ours <= 3 * max([0.0, *eagers.tolist()]) + unit).all()


OF_SEVERAL_DIMENSIONS = [
    op for op, given in SAMPLES.items() if any(x.dim() > 2 for x in leaves(given) if isinstance(x, torch.Tensor))
]


def turned(value):
    """Return a tensor with its second dimension innermost, as channels are in `channels_last`."""
    if not isinstance(value, torch.Tensor) or value.dim() < 3:
        return value
    order = [0, *range(2, value.dim()), 1]
    return value.permute(order).contiguous().permute([order.index(d) for d in range(value.dim())])


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("op", OF_SEVERAL_DIMENSIONS, ids=str)
def test_parts_lie_as_the_whole(op, symbolic):
    arguments, spec = torch.utils._pytree.tree_flatten(torch.utils._pytree.tree_map(turned, SAMPLES[op]))
    places = [n for n, x in enumerate(arguments) if isinstance(x, torch.Tensor)]
    mode = fake_mode(ShapeEnv(), kind=EagerMode) if symbolic else EagerMode()

    def fake(n):
        x = arguments[n]
        return fakeify(mode, x, f"x{n}", range(x.dim())) if symbolic else mode.from_tensor(x)

    def program(*tensors):
        given = {**dict(enumerate(arguments)), **dict(zip(places, tensors, strict=True))}
        return op(*torch.utils._pytree.tree_unflatten(list(given.values()), spec))

    recorded = record(program, [fake(n) for n in places], decompositions=default_decompositions(), fake_mode=mode)
    found = leaves(recorded.graph_module.graph.find_nodes(op="output")[0].args[0])
    for node, wanted in zip(found, leaves(program(*[arguments[n].clone() for n in places])), strict=True):
        strides = [s if type(s) is int else s.node.hint for s in meta.value(node).stride()]
        assert [s for n, s in zip(wanted.shape, strides, strict=True) if n > 1] == [
            s for n, s in zip(wanted.shape, wanted.stride(), strict=True) if n > 1
        ]


@pytest.mark.parametrize("index", [2, -1])
def test_take_with_an_index_without_dimensions(index):
    arguments = R(2, 3), torch.tensor(index)
    recorded = record(lambda *args: ops.take.default(*args), arguments, decompositions=default_decompositions())
    assert torch.equal(aten.interpret(recorded.graph_module, *arguments)[0], torch.take(*arguments))


def test_in_place_forms_are_rows_too():
    table = default_decompositions()
    assert ops.celu_.default in table and ops.zero_.default not in table and ops.mse_loss.out not in table
    recorded = record(lambda x: torch.celu_(x, 2.0), (R(3),), decompositions=table)
    assert str(list(recorded.graph_module.graph.nodes)[-2].target) == "aten.copy_.default"


def test_tables_are_copies():
    default_decompositions().clear()
    assert default_decompositions()


def test_what_eager_refuses_for_integers_stays_a_call_that_raises():
    """A decomposition would compute something; the op itself raises, when it is recorded or when it runs."""
    x = torch.arange(8, dtype=torch.int8)
    done = record(lambda a: ops.glu.default(a, -1), (x,), decompositions=default_decompositions())
    assert [n.target for n in done.graph_module.graph.nodes if n.op == "call_function"] == [ops.glu.default]
    with pytest.raises(NotImplementedError):
        aten.interpret(done.graph_module, x)


@pytest.mark.parametrize("op", [op for op in SAMPLES if eager.rows_of(op, eager.RefusedTypes)], ids=str)
def test_no_type_that_eager_refuses_comes_apart(op):
    """Whatever is added to the table: its parts would compute what eager has no kernel for."""
    if op in RELATIVES:
        pytest.skip("it takes a type, or needs a GPU: a relative above stands for it")
    (rule,) = eager.rules_of(op, eager.RefusedTypes)
    for dtype in rule.types - {torch.complex32}:
        assert default_decompositions()[op](*cast(SAMPLES[op], dtype)) is NotImplemented


@pytest.mark.parametrize(
    "number", [(ops.celu.default, (R(3), 0.0)), (ops.smooth_l1_loss.default, (R(3), R(3), 1, -1.0))]
)
def test_no_number_that_eager_refuses_comes_apart(number):
    op, arguments = number
    with pytest.raises(RuntimeError):
        op(*arguments)
    assert default_decompositions()[op](*arguments) is NotImplemented


def test_the_parts_of_every_op_that_rounds_each_step_do():
    rounding = {row.op for row in eager.ROWS if row.rule.__class__ is eager.Rounds and is_stepwise(row.rule)}
    assert {eager.base_name(op) for op in STEPWISE} == rounding - {"logsumexp"}  # which a lowering takes whole


def is_stepwise(rule):
    return rule.what is eager.Rounded.EACH_STEP


@pytest.mark.parametrize(
    "norm",
    [
        lambda x, w: ops.native_group_norm.default(x, w, None, 4, 6, 5, 2, 1e-5),
        lambda x, w: ops.native_batch_norm.default(x, w, None, None, None, True, 0.1, 1e-5),
    ],
    ids=["group norm", "batch norm"],
)
def test_statistics_have_the_type_of_parameters(norm):
    """Under autocast a rounded mean or deviation would reach every gradient."""
    arguments = (R(4, 6, 5).bfloat16(), P(6))
    recorded = record(norm, arguments, decompositions=default_decompositions())
    actual, expected = leaves(aten.interpret(recorded.graph_module, *arguments)), leaves(norm(*arguments))
    assert [a.dtype for a in actual] == [torch.bfloat16, torch.float32, torch.float32]
    torch.testing.assert_close(actual[1:], expected[1:], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(actual[0], expected[0])


def test_a_bfloat16_batch_norm_rounds_what_its_kernel_rounds():
    """Statistics are sums in another order: now and then one rounds to the next number, and with it its channel."""
    torch.manual_seed(0)
    x, weight, bias = ((torch.randn(s) * 0.7 + 0.3).bfloat16() for s in ((4, 64, 6, 6), (64,), (64,)))
    found = []
    for table in (None, default_decompositions()):
        arguments = x, weight, bias, torch.zeros(64).bfloat16(), torch.ones(64).bfloat16(), True, 0.1, 1e-5
        if table is None:
            results = ops.native_batch_norm.default(*arguments)
        else:
            tensors = arguments[:5]
            recorded = record(
                lambda *t: ops.native_batch_norm.default(*t, True, 0.1, 1e-5), tensors, decompositions=table
            )
            results = aten.interpret(recorded.graph_module, *tensors)
        found.append([*results, *arguments[3:5]])
    for a, b in zip(*found, strict=True):
        assert a.dtype is b.dtype and (a != b).float().mean() < 0.1


def test_a_product_with_a_conjugate_has_the_bits_that_eager_gives_it():
    x, y = torch.complex(R(5), R(5)), torch.complex(R(5), R(5))
    for a in (x, x.conj()):
        for b in (y, y.conj()):
            recorded = record(ops.vdot.default, (a, b), decompositions=default_decompositions())
            (result,) = aten.interpret(recorded.graph_module, a, b)
            assert result.is_conj() == torch.vdot(a, b).is_conj()
            torch.testing.assert_close(result, torch.vdot(a, b))
