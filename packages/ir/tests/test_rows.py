"""Totality: every operator overload has a row, can be verified, printed and parsed; corrections match what ops do."""

import keyword
import operator
import warnings
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.fx as fx
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from intarsia_ir import Origin, aten, meta
from intarsia_ir import torch as torch_dialect
from intarsia_ir.aten import SCALAR_FUNCTIONS, effects, node_effects, overload_named, row, viewed_nodes, written_nodes
from intarsia_ir.aten import ops as table


def all_overloads() -> list[OpOverload]:
    names = sorted(n for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::"))
    parts = [name.removeprefix("aten::").partition(".") for name in names]
    # an overload named by a keyword, such as `random.from`, breaks the Python that GraphModule generates
    return [
        overload_named(f"aten.{base}.{overload or 'default'}")
        for base, _, overload in parts
        if not keyword.iskeyword(overload)
    ]


def sample(kind: str, x: fx.Node) -> Any:
    """An argument that fits a kind; None where only a live object would."""
    if kind.endswith("?"):
        return None
    if kind.endswith("[]"):
        return [] if kind.startswith("__torch__") else [sample(kind[:-2], x)]
    values: dict[str, Any] = {
        "Tensor": x, "int": 1, "float": 0.5, "bool": True, "Scalar": 2, "str": "sum", "ScalarType": torch.float32,
        "Layout": torch.strided, "MemoryFormat": torch.contiguous_format, "Device": torch.device("cpu"),
    }  # fmt: skip
    return values.get(kind)


def result(kind: str, value: torch.Tensor) -> Any:
    if kind.endswith("[]"):
        return [result(kind[:-2], value)]
    return {"Tensor": value, "int": 1, "float": 0.5, "bool": True, "Scalar": 2, "ScalarType": torch.float32}.get(kind)


def add_call(graph: fx.Graph, target: OpOverload, x: fx.Node) -> None:
    operands = row(target).operands
    args = [sample(o.kind, x) for o in operands if not o.keyword_only]
    kwargs = {o.name: sample(o.kind, x) for o in operands if o.keyword_only}
    node = graph.call_function(target, tuple(args), kwargs)
    meta.set_origins(node, [Origin("all.py", 1, "f")])
    results = [result(kind, meta.value(x)) for kind in row(target).results]
    meta.set_value(node, None if not results else results[0] if len(results) == 1 else tuple(results))


def test_every_overload_is_verifiable_printable_parsable() -> None:
    start = aten.parse_ir("// dialect: aten 2\ngraph(%x: f32[2, 3]) { return () }")
    graph = fx.Graph()
    x = graph.node_copy(next(iter(start.graph.nodes)))
    overloads = all_overloads()
    assert len(overloads) > 3000
    for target in overloads:
        add_call(graph, target, x)
    graph.output(())
    gm = fx.GraphModule(torch.nn.Module(), graph)
    aten.verify(gm)
    text = aten.print_ir(gm)
    back = aten.parse_ir(text)
    assert aten.print_ir(back) == text
    targets = [node.target for node in back.graph.nodes if node.op == "call_function"]
    assert targets == overloads


def test_every_scalar_function_is_printable_and_parsable() -> None:
    graph = fx.Graph()
    n = graph.placeholder("n")
    for function in sorted(SCALAR_FUNCTIONS, key=repr):
        meta.set_value(graph.call_function(function, (n, 2)), 3)
    graph.output(())
    meta.set_value(n, 5)
    gm = fx.GraphModule(torch.nn.Module(), graph)
    aten.verify(gm, origins=False)
    text = aten.print_ir(gm)
    assert aten.print_ir(aten.parse_ir(text)) == text


GONE = {"cholesky"}  # from ATen since torch 2.14; torch 2.11 to 2.13 have it


def test_corrections_name_existing_ops_and_arguments() -> None:
    for corrections in (table._HIDDEN_WRITES, table._HIDDEN_VIEWS):
        for name, arguments in corrections.items():
            operands = {o.name for o in row(overload_named(name)).operands}
            assert set(arguments) <= operands, name
    packets = {str(o._schema.name).removeprefix("aten::") for o in all_overloads()}
    for names in (table._MAY_RAISE_PACKETS, table._CHECK_PACKETS, table._RANDOM_PACKETS, table._DIVISION_PACKETS):
        assert names - GONE <= packets, names - packets


class Watch(TorchDispatchMode):
    """Compares what each op does to its arguments with what its row says."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, int] = defaultdict(int)
        self.undeclared: set[tuple[str, str, str]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen[str(func)] += 1
        if self.seen[str(func)] > 6:
            return func(*args, **(kwargs or {}))
        names = [a.name for a in func._schema.arguments if not a.kwarg_only]
        named = {**dict(zip(names, args)), **(kwargs or {})}
        before = {name: [(t, t.clone()) for t in strided(value)] for name, value in named.items()}
        state = torch.get_rng_state()
        out = func(*args, **(kwargs or {}))
        declared = effects(func)
        if not torch.equal(state, torch.get_rng_state()) and not declared.random:
            self.undeclared.add((str(func), "random", ""))
        for name, tensors in before.items():
            for tensor, copy in tensors:
                if name not in declared.writes and changed(tensor, copy):
                    self.undeclared.add((str(func), "writes", name))
                if name not in declared.views + declared.writes and shares(out, tensor, declared.writes, named):
                    self.undeclared.add((str(func), "views", name))
        return out


def strided(value: Any) -> Iterator[torch.Tensor]:
    return (t for t in tree_leaves(value) if isinstance(t, torch.Tensor) and t.layout is torch.strided)


def changed(tensor: torch.Tensor, copy: torch.Tensor) -> bool:
    return tensor.shape != copy.shape or not torch.allclose(tensor, copy, rtol=0, atol=0, equal_nan=True)


def shares(out: Any, tensor: torch.Tensor, writes: tuple[str, ...], named: dict[str, Any]) -> bool:
    own = {id(t) for name in writes for t in strided(named.get(name))}
    results = [t for t in strided(out) if id(t) not in own and t.numel()]
    return any(t.untyped_storage()._cdata == tensor.untyped_storage()._cdata for t in results)


def test_rows_say_what_ops_do() -> None:
    """On the samples that torch tests its own ops with: every write, alias and draw is declared."""
    from torch.testing._internal.common_methods_invocations import op_db

    watch, ran = Watch(), 0
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        for op in op_db:
            if torch.float32 not in op.supported_dtypes("cpu"):
                continue
            # op.sample_inputs would search the call stack for the test, for each sample
            found = next(iter(op.sample_inputs_func(op, "cpu", torch.float32, False)), None)
            if found is None or op.name in _NOT_RUN or op.name.startswith("jiterator"):
                continue
            with watch:
                op(found.input, *found.args, **found.kwargs)
            ran += 1
    assert ran > 550 and len(watch.seen) > 350
    assert watch.undeclared == set()


# need more than eager on a CPU: a sparse layout that can't be compared, or a mode of their own
_NOT_RUN = frozenset(["to_sparse", "sparse.sampled_addmm", "sparse.mm"])


# ---- effects of single calls -----------------------------------------------------------------------------------


def call(text: str) -> fx.Node:
    gm = aten.parse_ir(f"// dialect: aten 2\ngraph(%x: f32[2, 3], %i: i64[2], %m: f32[3]) {{ {text} return () }}")
    return [node for node in gm.graph.nodes if node.op == "call_function"][-1]


@pytest.mark.parametrize(
    ("text", "removable", "repeatable"),
    [
        ("%0: f32[2, 3] = aten.sin.default(%x)", True, True),
        ("%0: f32[2, 3] = aten.add_.Tensor(%x, 1)", False, False),
        ("%0: f32[2, 3] = aten.rand.default([2, 3])", False, False),
        ("%0: f32[2, 3] = aten.bernoulli.p(%x, 0.5)", False, False),
        ("%0: f32[2, 3] = aten.index.Tensor(%x, [%i])", False, True),
        ("%0 = aten._assert_async.default(%x)", False, True),
        ("%0: f32[2, 3] = aten.floor_divide.default(%x, 2)", True, True),
        ("%0: i64[2] = aten.floor_divide.default(%i, 2)", False, True),
        ("%0: f32[6] = aten.view.default(%x, [6])", True, True),
        ("%0 = aten.record_stream.default(%x, None)", False, False),
        ("%0: (f32[2, 3], f32[0], f32[0]) = BN(%x, None, None, %m, %m, False, 0.1, 0.1)", True, True),
        ("%0: (f32[2, 3], f32[3], f32[3]) = BN(%x, None, None, %m, %m, True, 0.1, 0.1)", False, False),
        ("%0: (f32[2, 3], f32[3], f32[3]) = BN(%x, None, None, None, None, True, 0.1, 0.1)", True, True),
    ],
)  # fmt: skip
def test_what_may_be_dropped_or_merged(text: str, removable: bool, repeatable: bool) -> None:
    found = node_effects(call(text.replace("BN", "aten.native_batch_norm.default")))
    assert (found.removable, found.repeatable) == (removable, repeatable), found


def test_written_and_viewed_nodes() -> None:
    node = call("%0: f32[2, 3] = aten.sin.default(%x) %1: f32[2, 3] = aten.add.out(%0, %x, out=%x)")
    assert [n.name for n in written_nodes(node)] == ["x"]
    node = call("%0: (f32[1, 3], f32[1, 3]) = aten.split.Tensor(%x, 1) %1: f32[1, 3] = operator.getitem(%0, 0)")
    assert node.target is operator.getitem and [n.name for n in viewed_nodes(node)] == [node.args[0].name]
    assert [n.name for n in viewed_nodes(node.args[0])] == ["x"]
    node = call("%0: f32[2, 3] = aten.sin.default(%x) %1 = aten._foreach_add_.Scalar([%0, %x], 1)")
    assert [n.name for n in written_nodes(node)] == [node.args[0][0].name, "x"]


@torch.library.custom_op("intarsia_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x + x


@torch.library.custom_op("intarsia_test::bump", mutates_args=("x",))
def bump(x: torch.Tensor) -> None:
    x.add_(1)


def test_custom_ops_are_rows_with_less_assumed() -> None:
    assert row(torch.ops.intarsia_test.twice.default).name == "intarsia_test.twice.default"
    assert effects(torch.ops.intarsia_test.twice.default).may_raise
    assert effects(torch.ops.intarsia_test.bump.default).writes == ("x",)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch is built without torch.distributed")
def test_collectives_are_made_once_and_in_order() -> None:
    collective = torch.ops._c10d_functional
    for target in (collective.all_reduce.default, collective.wait_tensor.default):
        found = effects(target)
        assert found.communicates and not found.removable and not found.repeatable
        assert found.marks() == ("communicates",)
    assert torch_dialect.effects(collective.all_reduce).communicates
    assert not torch_dialect.effects(torch.relu).communicates
    for target in (collective.all_reduce, collective.all_reduce.default):
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        graph.output(graph.call_function(target, (x, "sum", "0")))
        assert torch_dialect.communicates(torch.fx.GraphModule({}, graph))


def test_python_functions_are_opaque_except_scalar_ones() -> None:
    assert effects(print).opaque and not effects(operator.add).opaque and effects(operator.add).removable


@pytest.mark.parametrize(
    ("target", "writes", "views", "random", "opaque"),
    [
        (torch.relu, (), (), False, False),
        (torch.nn.functional.dropout, (), ("self",), True, False),
        (operator.iadd, ("self",), (), False, False),
        (operator.setitem, ("self",), (), False, False),
        (operator.getitem, (), ("self",), False, False),
        (operator.and_, (), (), False, False),
        ("add_", ("self",), (), False, False),
        ("view", (), ("self",), False, False),
        ("size", (), (), False, False),
        ("float", (), ("self",), False, False),
        (torch.linalg.inv, (), (), False, False),
        (torch.rand, (), (), True, False),
        (print, (), (), False, True),
        (torch._C._set_grad_enabled, (), (), False, True),
    ],
    ids=str,
)
def test_rows_of_the_torch_dialect(
    target: Any, writes: tuple[str, ...], views: tuple[str, ...], random: bool, opaque: bool
) -> None:
    found = torch_dialect.row(target).effects
    assert (found.writes, found.views, found.random, found.opaque) == (writes, views, random, opaque)


def test_keywords_add_writes_and_rule_out_draws() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    functional = torch.nn.functional
    inplace = graph.call_function(functional.relu, (x,), {"inplace": True})
    out = graph.call_function(torch.add, (x, 1), {"out": x})
    still = graph.call_function(functional.dropout, (x,), {"training": False})
    assert torch_dialect.written_nodes(inplace) == (x,) and torch_dialect.written_nodes(out) == (x,)
    assert not torch_dialect.node_effects(still).random
    assert torch_dialect.viewed_nodes(graph.call_method("view", (x, -1))) == (x,)


@pytest.mark.parametrize("kind", ["cudnn", "efficient"])
def test_attention_draws_in_the_forward_pass_only(kind: str) -> None:
    forward = getattr(torch.ops.aten, f"_scaled_dot_product_{kind}_attention").default
    backward = getattr(torch.ops.aten, f"_scaled_dot_product_{kind}_attention_backward").default
    assert effects(forward).random
    assert not effects(backward).random  # it repeats the draws of a seed that it is given
