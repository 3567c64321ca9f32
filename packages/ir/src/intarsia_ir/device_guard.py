"""What torch notes for the CUDA devices that a machine lacks, kept from dying with a thread.

On a machine without a GPU, a torch built for CUDA notes on first use of a fake mode what stands for its devices. Before
2.15 that belongs to the thread which enters the mode and is freed when the thread ends, while the whole process goes on
using it: the next fake mode in any thread, or the next backward pass, crashes the interpreter. Noted by a thread that
lives as long as the process it does no harm, since it is noted once.
"""

from __future__ import annotations

import functools
import threading

import torch
from torch.torch_version import TorchVersion

__all__ = ["keep_device_guard"]


def keep_device_guard() -> None:
    """Make fake modes safe to enter in threads that end; to be called before one is entered, from any thread.

    Example:
        >>> keep_device_guard()
    """
    if TorchVersion(torch.__version__) < "2.15" and torch.backends.cuda.is_built() and not torch.cuda.is_available():
        _note()


@functools.cache
def _note() -> None:
    note = torch._C._ensureCUDADeviceGuardSet  # type: ignore[attr-defined]
    if threading.current_thread() is threading.main_thread():
        note()
        return
    noted = threading.Event()

    def keep() -> None:
        note()
        noted.set()
        threading.Event().wait()  # until the process ends

    threading.Thread(target=keep, name="intarsia device guard", daemon=True).start()
    noted.wait()
