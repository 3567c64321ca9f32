"""What one process sends to another, as operators without writes, which torch's own of this kind have unsaid.

    intarsia_p2p::send(Tensor tensor, int to, int tag, str group) -> Tensor
    intarsia_p2p::receive(Tensor like, int source, int tag, str group) -> Tensor

`send` gives the copy that is under way, and `receive` memory of its own in which data arrives, laid out row by row with
the sizes, type and device of `like`, whose elements aren't read. `_c10d_functional::wait_tensor` waits for either.
Places of processes are those in the group. Each makes the one call of the process group that eager's function makes.
"""

from __future__ import annotations

import torch
import torch.distributed
from torch import Tensor

__all__ = ["NAMESPACE"]

NAMESPACE = "intarsia_p2p"


def _send(tensor: Tensor, to: int, tag: int, group: str) -> Tensor:
    sent = tensor.clone(memory_format=torch.contiguous_format)
    return _under_way(sent, _group(group).send([sent], to, tag))


def _receive(like: Tensor, source: int, tag: int, group: str) -> Tensor:
    arriving = _laid_out(like)
    return _under_way(arriving, _group(group).recv([arriving], source, tag))


def _group(name: str) -> torch.distributed.ProcessGroup:
    return torch.distributed.distributed_c10d._resolve_process_group(name)  # type: ignore[attr-defined,arg-type]


def _under_way(tensor: Tensor, work: torch.distributed.Work) -> Tensor:
    torch._C._distributed_c10d._register_work(tensor, work)
    return tensor


def _laid_out(like: Tensor, *_: object) -> Tensor:
    return torch.empty_like(like, memory_format=torch.contiguous_format)


def _define() -> torch.library.Library:
    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    for name, parameters, run in (
        ("send", "Tensor tensor, int to", _send),
        ("receive", "Tensor like, int source", _receive),
    ):
        library.define(f"{name}({parameters}, int tag, str group) -> Tensor")
        library.impl(name, run, "CompositeExplicitAutograd")
        library.impl(name, torch.library.fallthrough_kernel, "Autograd")  # as in eager, no gradient goes through it
        library._register_fake(name, _laid_out)
    return library


_LIBRARY = _define()  # the operators exist as long as it does
