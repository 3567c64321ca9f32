"""Rewrites of frozen models: values stay within the rounding that each states, what isn't known is left alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.fx as fx
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir import aten, meta
from intarsia_ir.aten import parse_ir
from intarsia_ir.errors import InvalidArgumentError
from intarsia_rewrites import ON_FROZEN, fold_batch_norm, fold_values, join_linear
from intarsia_testkit.fired import Tally

OPS: Any = torch.ops.aten
CHECKS = settings(derandomize=True, deadline=None, max_examples=60)
FEW = settings(CHECKS, max_examples=6)
NAMES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16"}
# units in the last place of the sum of magnitudes: of a product's own roundings, of its weights' and of what follows
ULPS = 8
SOURCES = [f"{kind}{n}" for kind in ("convolution", "transposed", "grouped") for n in (1, 2, 3)]
SOURCES += ["transposed groups", "channels last", "mm", "addmm"]
fired = Tally("rewrites of frozen models", ["joined mm", "joined addmm", "stored"])


def text(inputs: dict[str, torch.Tensor], body: str) -> fx.GraphModule:
    """Return FX(aten) over inputs of these types and layouts."""

    def type_of(x: torch.Tensor) -> str:
        strides = "" if x.is_contiguous() else f"@({', '.join(map(str, x.stride()))})"
        return f"{NAMES[x.dtype]}[{', '.join(map(str, x.shape))}]{strides}"

    names = ", ".join(f"%{name}: {type_of(x)}" for name, x in inputs.items())
    return parse_ir(f"// dialect: aten 2\ngraph({names}) {{\n{body}\n}}\n")


def targets(gm: fx.GraphModule) -> list[str]:
    return [str(n.target) for n in gm.graph.nodes if n.op == "call_function"]


def frozen(gm: fx.GraphModule, inputs: dict[str, torch.Tensor], known: set[str]) -> fx.GraphModule:
    """Return what all rewrites of a frozen model make of a graph."""
    for rewrite in ON_FROZEN:
        gm = rewrite(gm, known=known)
    return fold_values(gm, values={name: inputs[name] for name in known}).graph_module


def check_close(made: fx.GraphModule, gm: fx.GraphModule, inputs: dict[str, torch.Tensor]) -> None:
    """Check values against those of float64, within `ULPS` of the sum of magnitudes, and strides."""
    dtype = next(iter(inputs.values())).dtype
    exact = aten.interpret(_wide(gm), *(x.double() for x in inputs.values()))
    magnitude = aten.interpret(_wide(gm, magnitudes=True), *(x.double() for x in inputs.values()))
    for a, before, e, m in zip(
        aten.interpret(made, *inputs.values()), aten.interpret(gm, *inputs.values()), exact, magnitude, strict=True
    ):
        assert a.dtype == before.dtype and a.stride() == before.stride()
        bound = ULPS * torch.finfo(dtype).eps * m.abs() + torch.finfo(dtype).tiny
        assert ((a.double() - e).abs() <= bound).all(), ((a.double() - e).abs() / bound).max()


def _wide(gm: fx.GraphModule, magnitudes: bool = False) -> fx.GraphModule:
    """Return the graph over float64; for magnitudes, of absolute operands, where a norm adds its mean."""

    class Wide(fx.Transformer):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if magnitudes:
                if target is OPS._native_batch_norm_legit_no_training.default:
                    x, gamma, beta, mean, var, *rest = args
                    both = [v if v is None else v.abs() for v in (gamma, beta)]
                    return super().call_function(target, (x, *both, -mean.abs(), var, *rest), kwargs)
                args = tuple(a.abs() if isinstance(a, fx.Proxy) and not _is_tuple(target) else a for a in args)
            kwargs = {**kwargs, "dtype": torch.float64} if "dtype" in kwargs else kwargs
            return super().call_function(target, args, kwargs)

    return Wide(gm).transform()


def _is_tuple(target: Any) -> bool:
    return getattr(target, "__name__", "") == "getitem"


@st.composite
def normed(draw: st.DrawFn, source: str) -> tuple[fx.GraphModule, dict[str, torch.Tensor]]:
    """A convolution or product of random sizes, followed by a batch norm."""
    dtype = draw(st.sampled_from(list(NAMES)))
    torch.manual_seed(draw(st.integers(0, 1000)))
    batch, n_in, n_out = draw(st.integers(1, 3)), 2 * draw(st.integers(1, 3)), 2 * draw(st.integers(1, 3))
    has_bias, has_gamma, has_beta = (draw(st.booleans()) for _ in range(3))
    transposed, groups = source.startswith("transposed"), 2 if "group" in source else 1
    if source in ("mm", "addmm"):
        x, w = torch.randn(batch + 1, n_in, dtype=dtype), torch.randn(n_out, n_in, dtype=dtype).t()
        result: Any = (batch + 1, n_out)
        has_bias = source == "addmm"
        call = "aten.addmm.default(%b, %x, %w)" if has_bias else "aten.mm.default(%x, %w)"
    else:
        n = 2 if source in ("transposed groups", "channels last") else int(source[-1])
        stride, pad = draw(st.integers(1, 2)), draw(st.integers(0, 1))
        x = torch.randn(batch, n_in, *[5] * n, dtype=dtype)
        w = torch.randn(*(n_in, n_out // groups) if transposed else (n_out, n_in // groups), *[3] * n, dtype=dtype)
        if source == "channels last":
            x, w = (v.to(memory_format=torch.channels_last) for v in (x, w))
        rest = ([stride] * n, [pad] * n, [1] * n, transposed, [0] * n, groups)
        made = OPS.convolution.default(x, w, None, *rest)
        result = tuple(made.shape)
        bias = "%b" if has_bias else "None"
        call = f"aten.convolution.default(%x, %w, {bias}, {', '.join(map(str, rest))})"
    shape = f"{NAMES[dtype]}[{', '.join(map(str, result))}]"
    if source == "channels last" and not made.is_contiguous():
        shape += f"@({', '.join(map(str, made.stride()))})"
    wide = draw(st.sampled_from([dtype, torch.float32])) if dtype.itemsize == 2 and source != "mm" else dtype
    inputs = {"x": x, "w": w, **({"b": torch.randn(n_out, dtype=dtype)} if has_bias else {})}
    inputs |= {"mean": torch.randn(n_out, dtype=wide), "var": torch.rand(n_out, dtype=wide) + 0.1}
    inputs |= {"gamma": torch.randn(n_out, dtype=wide)} if has_gamma else {}
    inputs |= {"beta": torch.randn(n_out, dtype=wide)} if has_beta else {}
    none, optional = NAMES[wide], [f"%{name}" if name in inputs else "None" for name in ("gamma", "beta")]
    gm = text(
        inputs,
        f"""  %0: {shape} = {call}  # model.py:1 in forward
  %1: ({shape}, {none}[0], {none}[0]) = aten._native_batch_norm_legit_no_training.default(%0,
      {", ".join(optional)}, %mean, %var, 0.1, 0.001)  # model.py:2 in forward
  %2: {shape} = operator.getitem(%1, 0)  # model.py:2 in forward
  return (%2,)""",
    )
    return gm, inputs


@pytest.mark.parametrize("source", SOURCES)
@FEW
@given(st.data())
def test_batch_norms_are_folded(source: str, data: st.DataObject) -> None:
    gm, inputs = data.draw(normed(source))
    before, known = aten.print_ir(gm), inputs.keys() - {"x"}
    folded = fold_batch_norm(gm, known=known)
    assert aten.print_ir(gm) == before and "batch_norm" not in " ".join(targets(folded))
    assert fold_batch_norm(folded, known=known) is folded and fold_batch_norm(gm, known=known, fuel=0) is gm
    check_close(folded, gm, inputs)
    made = frozen(gm, inputs, set(known))
    assert targets(made) == ["aten.addmm.default" if source in ("mm", "addmm") else "aten.convolution.default"]
    (call,) = (node for node in made.graph.nodes if node.op == "call_function")
    assert len(meta.origins(call)) == 2
    check_close(made, gm, inputs)


@pytest.mark.parametrize("source", ["convolution2", "addmm"])
@FEW
@given(st.data())
def test_what_is_not_known_is_left(source: str, data: st.DataObject) -> None:
    gm, inputs = data.draw(normed(source))
    missing = data.draw(st.sampled_from(sorted(inputs.keys() - {"x"})))
    assert fold_batch_norm(gm, known=inputs.keys() - {"x", missing}) is gm


CONVOLUTION = "aten.convolution.default(%x, %w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)"
NORM = "aten._native_batch_norm_legit_no_training.default(%0, None, None, %mean, %var, 0.1, 0.001)"
IMAGES = {
    "x": torch.randn(1, 2, 4, 4), "w": torch.randn(3, 2, 1, 1), "mean": torch.randn(3), "var": torch.rand(3)
}  # fmt: skip


@pytest.mark.parametrize("result", ["%2, %0", "%2, %3"])
def test_a_convolution_that_others_read_is_left(result: str) -> None:
    """Its own value, or the statistics, are wanted."""
    body = f"""  %0: f32[1, 3, 4, 4] = {CONVOLUTION}
  %1: (f32[1, 3, 4, 4], f32[0], f32[0]) = {NORM}
  %2: f32[1, 3, 4, 4] = operator.getitem(%1, 0)
  %3: f32[0] = operator.getitem(%1, 1)
  return ({result})"""
    gm = text(IMAGES, body if "%3" in result else "\n".join(line for line in body.split("\n") if "%3" not in line))
    assert fold_batch_norm(gm, known={"w", "mean", "var"}) is gm


# ---- products --------------------------------------------------------------------------------------------------


@st.composite
def products(draw: st.DrawFn) -> tuple[str, int, fx.GraphModule, dict[str, torch.Tensor]]:
    """Products of one matrix, followed by what reads them."""
    kind, dtype = draw(st.sampled_from(["mm", "addmm"])), draw(st.sampled_from(list(NAMES)))
    count, k, turned = draw(st.integers(1, 4)), draw(st.integers(1, 5)), draw(st.booleans())
    torch.manual_seed(draw(st.integers(0, 1000)))
    short, inputs = NAMES[dtype], {"x": torch.randn(2, k, dtype=dtype)}
    lines, results = [], []
    for i in range(count):
        n = 2 * draw(st.integers(1, 3))
        inputs[f"w{i}"] = torch.randn(n, k, dtype=dtype) if turned else torch.randn(k, n, dtype=dtype)
        inputs |= {f"b{i}": torch.randn(n, dtype=dtype)} if kind == "addmm" else {}
        weight = f"%t{i}" if turned else f"%w{i}"
        if turned:
            lines.append(f"%t{i}: {short}[{k}, {n}]@(1, {k}) = aten.t.default(%w{i})")
        bias = f"%b{i}, " if kind == "addmm" else ""
        lines.append(f"%p{i}: {short}[2, {n}] = aten.{kind}.default({bias}%x, {weight})  # model.py:{i + 1} in forward")
        readers = {
            "result": (f"%p{i}", []),
            "pointwise": (f"%r{i}", [f"%r{i}: {short}[2, {n}] = aten.relu.default(%p{i})"]),
            "heads": (f"%r{i}", [f"%h{i}: {short}[2, 2, {n // 2}] = aten.view.default(%p{i}, [2, 2, {n // 2}])",
                                 f"%r{i}: {short}[2, 2, {n // 2}] = aten.neg.default(%h{i})"]),
            "flat": (f"%r{i}", [f"%h{i}: {short}[{2 * n}] = aten.view.default(%p{i}, [{2 * n}])",
                                f"%r{i}: {short}[{2 * n}] = aten.neg.default(%h{i})"]),
        }  # fmt: skip
        result, more = readers[draw(st.sampled_from(sorted(readers)))]
        results.append(result)
        lines += more
    body = "".join(f"  {line}\n" for line in lines)
    return kind, count, text(inputs, f"{body}  return ({', '.join(results)},)"), inputs


@CHECKS
@given(products())
def test_products_are_joined(drawn: tuple[str, int, fx.GraphModule, dict[str, torch.Tensor]]) -> None:
    kind, count, gm, inputs = drawn
    before, known = aten.print_ir(gm), inputs.keys() - {"x"}
    joined = join_linear(gm, known=known)
    assert aten.print_ir(gm) == before and (joined is gm) is (count == 1)
    assert sum("mm" in target for target in targets(joined)) == 1
    assert join_linear(joined, known=known) is joined and join_linear(gm, known=known, fuel=0) is gm
    check_close(joined, gm, inputs)
    made = frozen(gm, inputs, set(known))
    assert not [target for target in targets(made) if "cat" in target]
    check_close(made, gm, inputs)
    results = [value.untyped_storage().data_ptr() for value in aten.interpret(made, *inputs.values())]
    assert len(set(results)) == count, "results share memory"
    fired.count(f"joined {kind}", count > 1)


def test_what_cannot_be_joined() -> None:
    inputs = {name: torch.randn(4, 4) for name in "xyuvw"} | {"a": torch.randn(4), "b": torch.randn(4, 4)}
    calls = ["mm.default(%x, %u)", "mm.default(%y, %v)", "addmm.default(%a, %x, %v)", "addmm.default(%b, %x, %w)",
             "addmm.default(%a, %x, %w, beta=2)", "mm.default(%x, %y)"]  # fmt: skip
    body = "".join(f"  %{i}: f32[4, 4] = aten.{call}\n" for i, call in enumerate(calls))
    gm = text(inputs, f"{body}  return ({', '.join(f'%{i}' for i in range(len(calls)))})")
    assert join_linear(gm, known=set("uvwab")) is gm


def test_attention_reads_the_parts_as_they_lie() -> None:
    """Without dropout it draws no numbers, so that it needs no copies of them."""
    inputs = {"x": torch.randn(6, 8), **{name: torch.randn(8, 8) for name in "qkv"}}
    body = "".join(
        f"""  %p{n}: f32[6, 8] = aten.mm.default(%x, %{n})
  %h{n}: f32[1, 6, 2, 4] = aten.view.default(%p{n}, [1, 6, 2, 4])
  %t{n}: f32[1, 2, 6, 4]@(48, 4, 8, 1) = aten.transpose.int(%h{n}, 1, 2)
"""
        for n in "qkv"
    )
    attention = "aten._scaled_dot_product_flash_attention_for_cpu.default(%tq, %tk, %tv{})"
    body += f"""  %0: (f32[1, 2, 6, 4]@(48, 4, 8, 1), f32[1, 2, 6]@(12, 1, 2)) = {attention}
  %1: f32[1, 2, 6, 4]@(48, 4, 8, 1) = operator.getitem(%0, 0)
  return (%1,)"""
    gm = text(inputs, body.format(""))
    joined = join_linear(gm, known=set("qkv"))
    assert "aten.clone.default" not in targets(joined)
    check_values(joined, gm, inputs)
    drops = join_linear(text(inputs, body.format(", 0.5")), known=set("qkv"))
    assert targets(drops).count("aten.clone.default") == 3


def check_values(made: fx.GraphModule, gm: fx.GraphModule, inputs: dict[str, torch.Tensor]) -> None:
    for a, e in zip(aten.interpret(made, *inputs.values()), aten.interpret(gm, *inputs.values()), strict=True):
        torch.testing.assert_close(a, e)
        assert a.stride() == e.stride()


# ---- stored values ---------------------------------------------------------------------------------------------


@CHECKS
@given(st.integers(0, 4), st.sampled_from(["sin", "neg", "exp"]), st.booleans())
def test_known_calls_are_stored(fuel: int, op: str, reads_once: bool) -> None:
    inputs = {"x": torch.randn(3, 2), "w": torch.randn(2, 3), "b": torch.randn(2), "c": torch.randn(2)}
    gm = text(
        inputs,
        f"""  %0: f32[3, 2]@(1, 3) = aten.t.default(%w)
  %1: f32[3, 2]@(1, 3) = aten.{op}.default(%0)
  %2: f32[3, 2]@(1, 3) = aten.mul.Tensor(%1, {"2" if reads_once else "%b"})
  %3: f32[3, 2] = aten.add.Tensor(%x, %2)
  %4: f32[2] = aten.cos.default(%b)
  %5: f32[3, 2] = aten.add.Tensor(%3, %4)
  %6: f32[3, 2] = aten.add.Tensor(%5, %c)
  return (%6,)""",
    )
    before, values = aten.print_ir(gm), {name: inputs[name] for name in "wbc"}
    folded = fold_values(gm, values=values, fuel=fuel)
    made = folded.graph_module
    stored = [n.target for n in made.graph.find_nodes(op="get_attr")]
    assert aten.print_ir(gm) == before and len(stored) == min(fuel, 2)
    assert folded.read == {0: (), 1: ("b",)}.get(fuel, ("w", "b"))
    check_values(made, gm, inputs)
    assert all(getattr(made, str(name)).untyped_storage().data_ptr() not in addresses(inputs) for name in stored)
    again = fold_values(made, values=values)
    assert again.graph_module is made or fuel < 2
    fired.count("stored", fuel > 0)


def addresses(inputs: dict[str, torch.Tensor]) -> set[int]:
    return {x.untyped_storage().data_ptr() for x in inputs.values()}


def test_every_case_was_drawn() -> None:
    assert not fired.missing()


def test_what_is_not_stored() -> None:
    """A result is made anew, a view costs nothing, and what is much larger than its operands would take memory."""
    inputs = {"x": torch.randn(3, 2), "w": torch.randn(2, 3), "b": torch.randn(600)}
    gm = text(
        inputs,
        """  %0: f32[2, 3] = aten.exp.default(%w)
  %1: f32[3, 2]@(1, 3) = aten.t.default(%w)
  %2: f32[3, 2] = aten.add.Tensor(%x, %1)
  %3: f32[600, 1] = aten.view.default(%b, [600, 1])
  %4: f32[600, 600] = aten.mul.Tensor(%3, %b)
  %5: f32[600, 600] = aten.bernoulli.p(%4, 0.5)
  %6: f32[600, 600] = aten.add.Tensor(%5, %4)
  return (%0, %2, %6)""",
    )
    folded = fold_values(gm, values={"w": inputs["w"], "b": inputs["b"]})
    assert folded.graph_module is gm and folded.read == ()


def test_a_value_of_another_type_is_refused() -> None:
    gm = text({"x": torch.ones(2), "w": torch.ones(2)}, "  %0: f32[2] = aten.add.Tensor(%x, %w)\n  return (%0,)")
    with pytest.raises(InvalidArgumentError, match=r"value of w is torch.float64\[2\], not"):
        fold_values(gm, values={"w": torch.ones(2, dtype=torch.float64)})
    for rewrite in ON_FROZEN:
        with pytest.raises(InvalidArgumentError, match="negative"):
            rewrite(gm, known=(), fuel=-1)


def test_values_are_computed_as_recorded() -> None:
    """Whatever autocast, gradients or inference mode is on, and what is stored is no inference tensor."""
    w = torch.nn.Parameter(torch.randn(4, 4))
    inputs = {"x": torch.randn(2, 4), "w": w}
    gm = text(
        inputs, "  %0: f32[4, 4] = aten.mm.default(%w, %w)\n  %1: f32[2, 4] = aten.mm.default(%x, %0)\n  return (%1,)"
    )
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        made = fold_values(gm, values={"w": w}).graph_module
    stored = made._folded0
    assert isinstance(stored, torch.Tensor) and not stored.is_inference() and not stored.requires_grad
    torch.testing.assert_close(stored, (w @ w).detach(), rtol=0, atol=0)
