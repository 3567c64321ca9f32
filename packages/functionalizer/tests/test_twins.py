"""Every in-place and out op of ATen has a functional twin, or is on the list of those that don't."""

import pytest
import torch
from torch._C import DispatchKey

from intarsia_functionalizer.decompositions import default_decompositions
from intarsia_functionalizer.twins import find_twin

aten = torch.ops.aten

# helpers of kernels, streams, and ops whose writes no functional op returns
WITHOUT = {
    "aten._cudnn_attention_forward_no_dropout_inplace.default",  # since torch 2.15
    "aten._cummax_helper.default",
    "aten._cummin_helper.default",
    "aten._fill_mem_eff_dropout_mask_.default",
    "aten._flash_attention_forward_no_dropout_inplace.default",
    "aten._fused_moving_avg_obs_fq_helper.default",
    "aten.record_stream.default",
    "aten.rrelu_with_noise_.default",
    "aten.shallow_copy_data_.default",  # since torch 2.14: gives a tensor another's storage, as set_ does
}


def in_place_ops():
    """ATen overloads that write to an argument that isn't `out=`, and reach a recorder."""
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        if (
            namespace != "aten"
            or not hasattr(aten, packet)
            or (overload or "default") not in getattr(aten, packet).overloads()
        ):
            continue
        op = getattr(getattr(aten, packet), overload or "default")
        schema = op._schema
        written = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        composite = op.has_kernel_for_dispatch_key(DispatchKey.CompositeImplicitAutograd)
        if (
            written
            and not composite
            and torch.Tag.inplace_view not in op.tags
            and not any(a.kwarg_only for a in written)
        ):
            yield op


def test_in_place_ops_have_twins():
    ops = list(in_place_ops())
    without = {str(op) for op in ops if find_twin(op) is None}
    print(f"in-place overloads {len(ops)}, with twin {len(ops) - len(without)}")
    # quantised and sparse storage isn't a matter of values
    without = {name for name in without if not any(word in name for word in ("resize", "sparse", "set_", "coalesce"))}
    assert without <= WITHOUT, sorted(without - WITHOUT)


@pytest.mark.parametrize(
    ("op", "twin", "written"),
    [
        (aten.add_.Tensor, aten.add.Tensor, ("self",)),
        (aten.bernoulli_.float, aten.bernoulli.p, ("self",)),
        (aten.normal_.default, aten.normal_functional.default, ("self",)),
        (aten.polygamma_.default, aten.polygamma.default, ("self",)),
        (aten.max.dim_max, aten.max.dim, ("max", "max_values")),
        (aten.arange.start_out, aten.arange.start_step, ("out",)),
        (aten._foreach_mul_.List, aten._foreach_mul.List, ("self",)),
        (
            aten.native_batch_norm.default,
            aten._native_batch_norm_legit_functional.default,
            ("running_mean", "running_var"),
        ),
    ],
    ids=str,
)
def test_some_twins(op, twin, written):
    found = find_twin(op)
    assert (found.op, found.written) == (twin, written)


def test_out_factories_inherit_type_and_device():
    assert find_twin(aten.zeros.out).inherited == ("dtype", "device")
    assert find_twin(aten.add.out).inherited == ()


def test_no_decomposition_of_the_table_writes_where_its_op_does_not(check_program):
    """A table entry that writes to its own temporaries is fine: writes are rewritten after decomposition."""

    def program(x, w, m, v):
        return torch.nn.functional.batch_norm(x, m, v, w, training=True)

    done = check_program(program, torch.randn(4, 3), torch.rand(3), torch.zeros(3), torch.ones(3), rtol=1e-5, atol=1e-5)
    assert aten._native_batch_norm_legit.default in default_decompositions()
    assert [w.input for w in done.signature.writes] == [2, 3]


def test_batch_norm_without_the_table():
    from intarsia_functionalizer import functionalize, to_aten

    def program(x, m, v):
        return torch.nn.functional.batch_norm(x, m, v, training=True)

    done = functionalize(to_aten(program, (torch.randn(4, 3), torch.zeros(3), torch.ones(3)), decompositions={}))
    ops = [n.target for n in done.graph_module.graph.nodes if n.op == "call_function"]
    assert aten._native_batch_norm_legit_functional.default in ops and len(done.signature.writes) == 2
