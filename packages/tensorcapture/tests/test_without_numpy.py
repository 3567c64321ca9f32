"""numpy is optional: without it, tensors are captured as ever, and what would be an array breaks."""

import subprocess
import sys

PROGRAM = """
import sys
sys.modules["numpy"] = None
import torch
from intarsia_tensorcapture import capture
from intarsia_tensorcapture.arrays.installed import np

assert np is None
found = capture(lambda x: x.sin() + 1, (torch.ones(3),))
assert not found.breaks and found.graph_module is not None
found = capture(lambda x: (x + 1).numpy(), (torch.ones(3),))
assert [broken.code for broken in found.breaks] == ["tracer.tensor_value"]
"""


def test_tensors_are_captured() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=300)
