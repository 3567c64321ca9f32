"""Fake modes may be entered in threads that end, where some versions of torch built for CUDA crash without a GPU."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys, threading
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from intarsia_ir.device_guard import keep_device_guard

def enter():
    keep_device_guard()
    with FakeTensorMode():
        torch.empty(3)

if sys.argv[1] == "main":
    keep_device_guard()
for _ in range(100):
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    torch.ones(3, requires_grad=True).sum().backward()
"""


@pytest.mark.parametrize("first", ["main", "thread"])
def test_fake_modes_of_threads_that_end_leave_the_process_whole(first: str) -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT, first], check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
