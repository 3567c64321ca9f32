"""Interpreting is calling each node eagerly, and leaves no ambient state behind."""

import pytest
import torch

from intarsia_ir import InternalError, InvalidArgumentError, aten
from intarsia_ir import torch as torch_dialect
from intarsia_ir.torch import interpret, parse_ir


def test_wrong_number_of_inputs() -> None:
    gm = parse_ir("// dialect: torch 2\ngraph(%x, %y) { return (%x,) }")
    with pytest.raises(InvalidArgumentError, match=r"takes 2 inputs \(x, y\), not 1"):
        interpret(gm, 1)


def test_writes_reach_the_arguments() -> None:
    gm = aten.parse_ir("// dialect: aten 2\ngraph(%x) { %0 = aten.add_.Tensor(%x, 1) return (%0,) }")
    x = torch.zeros(2)
    (result,) = aten.interpret(gm, x)
    assert result is x and x.tolist() == [1.0, 1.0]


REGIONS = """// dialect: torch 2
graph(%x) {
  %0 = torch._C._set_grad_enabled(False)
  %1 = torch.amp.autocast_mode._enter_autocast('cpu', bf16, True, None)
  %2 = torch.matmul(%x, %x)
  %3 = OP
  %4 = torch.amp.autocast_mode._exit_autocast(%1)
  return (%2, %3)
}
"""


def test_regions_act_and_end() -> None:
    gm = parse_ir(REGIONS.replace("OP", "torch.is_grad_enabled()"))
    with torch.enable_grad():
        product, grad_mode = interpret(gm, torch.ones(2, 2))
        assert product.dtype is torch.bfloat16 and grad_mode is False
        assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


def test_regions_end_after_an_error() -> None:
    gm = parse_ir(REGIONS.replace("OP", "torch.matmul(%x, 3)"))
    with pytest.raises(TypeError):
        interpret(gm, torch.ones(2, 2))
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


def test_region_of_inference_mode() -> None:
    text = """// dialect: torch 2
graph(%x) {
  %0 = torch.autograd.grad_mode._enter_inference_mode(True)
  %1 = torch.neg(%x)
  %2 = torch.autograd.grad_mode._exit_inference_mode(%0)
  return (%1,)
}
"""
    (result,) = interpret(parse_ir(text), torch.ones(2))
    assert result.is_inference() and not torch.is_inference_mode_enabled()


def test_call_module_is_run() -> None:
    text = "// dialect: torch 2\ngraph(%x) {\n  %0 = call_module('act', %x) !opaque\n  return (%0,)\n}\n"
    gm = parse_ir(text, constants={"act": torch.nn.ReLU()})
    assert torch_dialect.print_ir(gm) == text and list(torch_dialect.constants_of(gm)) == ["act"]
    assert torch_dialect.interpret(gm, torch.tensor([-1.0]))[0].item() == 0.0


def test_no_output() -> None:
    gm = parse_ir("// dialect: torch 2\ngraph(%x) { return (%x,) }")
    gm.graph.erase_node(next(iter(gm.graph.find_nodes(op="output"))))
    with pytest.raises(InternalError):
        interpret(gm, 1)
