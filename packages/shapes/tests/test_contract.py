"""Everything that the installed torch may call on a node exists on ours."""

import re
from pathlib import Path

import torch
import torch.fx.experimental.sym_node as torch_sym_node

from intarsia_shapes import SymNode
from intarsia_shapes.layout import LayoutQuestions
from intarsia_testkit.torch_contract import check_torch_names

HEADER = Path(torch.__file__).parent / "include/torch/csrc/utils/python_symnode.h"


def own(name):
    """Whether the name is defined by us, not inherited from torch's class."""
    return any(name in vars(c) for c in (SymNode, LayoutQuestions))


def test_every_name_that_the_cpp_adapter_asks_for():
    text = HEADER.read_text()
    names = set(re.findall(r'attr\("(\w+)"\)', text)) | set(re.findall(r"TORCH_SYMNODE_SIZES_STRIDES\((\w+)\)", text))
    names |= set(re.findall(r"c10::SymNode (\w+)\([^)]*\)\s*override", text))
    names.discard("n")
    # constants live on the instance
    names -= {"constant", "shape_env", "pytype"}
    assert len(names) > 40
    assert [n for n in sorted(names) if not own(n)] == []


def test_every_name_that_pythons_magic_methods_ask_for():
    trailing = torch_sym_node.magic_methods_on_operator_with_trailing_underscore
    names = {f"sym_{m}" if m in trailing else m for m in torch_sym_node.magic_methods}
    assert len(names) > 40
    assert [n for n in sorted(names) if not own(n)] == []


def test_torch_has_what_the_package_uses():
    check_torch_names("intarsia_shapes")
