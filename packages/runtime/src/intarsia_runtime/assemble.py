"""One graph, or a forward and a backward graph, linked -> the function that a caller of the captured code gets.

From the inside out: the graph; its replays, where these are asked for; the autograd node around a pair; the epilogue.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from intarsia_ir.records import Role
from intarsia_ir.values import Partition
from intarsia_ir.where import warn_user
from intarsia_runtime.again import Rerun
from intarsia_runtime.epilogue import with_epilogue
from intarsia_runtime.linked import Linked
from intarsia_runtime.relied import let_through_backward
from intarsia_runtime.replay import cuda_stream, record_cuda_graph, replayed
from intarsia_runtime.training import with_backward

__all__ = ["assembled"]

Run = Callable[..., Sequence[Any]]


def assembled(
    program: Partition[Linked], *, cuda_graphs: bool = False, rerun: Rerun | None = None
) -> Callable[..., list[Any]]:
    """Return a function over flat inputs that gives the flat outputs of a captured graph.

    Args:
        program: What runs its graphs, and how they fit together.
        cuda_graphs: On a CUDA device, the runners that `link` made are replayed as CUDA graphs.
        rerun: In training: how eager runs the captured graph, for gradients that are differentiated again.

    Raises:
        UnsupportedError: For outputs that would need a backward graph.

    Example:
        >>> from intarsia_ir.records import Fresh, Signature
        >>> twice = Signature(outputs=(Fresh(0), Fresh(0)))
        >>> assembled(Partition(Linked(lambda x: (x + 1,), twice)))(torch.ones(2))
        [tensor([2., 2.]), tensor([2., 2.])]
    """
    forward, halves = program.forward, program.halves
    let_through_backward(program)
    lifted = [n for n, spec in enumerate(forward.signature.inputs) if spec.role in (Role.PARAMETER, Role.BUFFER)]
    device = forward.device if cuda_graphs else None
    run = _replayed(forward.run, lifted, device)
    if not halves:
        return with_epilogue(run, forward.signature)
    pairs = []
    for backward, half in zip(program.backwards, halves, strict=True):
        # what the forward graph makes lies in the memory of one of its recordings
        stay = [n for n, s in enumerate(half.saved) if not s.is_input or s.position in lifted]
        pairs.append((_replayed(backward.run, stay, device), half))
    run = with_backward(run, *pairs[0], pairs[1:], rerun)
    return with_epilogue(run, forward.signature, halves[0], halves[1:])


def _replayed(run: Run, stay: Collection[int], device: torch.device | None) -> Run:
    if device is None or device.type != "cuda" or not getattr(run, "owns_results", False):
        return run
    if getattr(run, "uses_host", False):
        warn_user("a graph isn't replayed as a CUDA graph, it runs as usual: it has tensors on the CPU", RuntimeWarning)
        return run
    if getattr(run, "communicates", False):
        reason = "it exchanges data with other processes"
        warn_user(f"a graph isn't replayed as a CUDA graph, it runs as usual: {reason}", RuntimeWarning)
        return run
    return replayed(run, stay, device, record_cuda_graph(device, getattr(run, "draws", True)), cuda_stream(device))
