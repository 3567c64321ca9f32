"""One graph, or a forward and a backward graph, linked -> the function that a caller of the captured code gets.

From the inside out: the graph; its replays, where these are asked for; the autograd node around a pair; the epilogue.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from intarsia_ir.records import Halves, Role, Signature
from intarsia_ir.where import warn_user
from intarsia_runtime.again import Rerun
from intarsia_runtime.epilogue import with_epilogue
from intarsia_runtime.replay import cuda_stream, record_cuda_graph, replayed
from intarsia_runtime.training import with_backward

__all__ = ["assembled"]

Run = Callable[..., Sequence[Any]]


def assembled(
    run: Run,
    signature: Signature,
    halves: Halves | None = None,
    backward: Run | None = None,
    cuda_graphs_on: torch.device | None = None,
    others: Sequence[tuple[Run, Halves]] = (),
    rerun: Rerun | None = None,
) -> Callable[..., list[Any]]:
    """Return a function over flat inputs that gives the flat outputs of a captured graph.

    Args:
        run: What `link` returned, or any function of the graph's inputs that gives its results.
        signature: What inputs and results mean to the caller.
        halves: In training: how the two graphs fit together.
        backward: In training: as `run`, for the backward graph.
        cuda_graphs_on: A CUDA device on which the runners that `link` made are replayed as CUDA graphs; None: nowhere.
        others: In training: further backward graphs, and how each fits together with the forward graph.
        rerun: In training: how eager runs the captured graph, for gradients that are differentiated again.

    Raises:
        UnsupportedError: For outputs that would need a backward graph.

    Example:
        >>> from intarsia_ir.records import Fresh
        >>> assembled(lambda x: (x + 1,), Signature(outputs=(Fresh(0), Fresh(0))))(torch.ones(2))
        [tensor([2., 2.]), tensor([2., 2.])]
    """
    lifted = [n for n, spec in enumerate(signature.inputs) if spec.role in (Role.PARAMETER, Role.BUFFER)]
    run = _replayed(run, lifted, cuda_graphs_on)
    if halves is None or backward is None:
        return with_epilogue(run, signature, halves)
    pairs = []
    for half_run, half in ((backward, halves), *others):
        # what the forward graph makes lies in the memory of one of its recordings
        stay = [n for n, s in enumerate(half.saved) if not s.is_input or s.position in lifted]
        pairs.append((_replayed(half_run, stay, cuda_graphs_on), half))
    run = with_backward(run, *pairs[0], pairs[1:], rerun)
    return with_epilogue(run, signature, halves, [half for _, half in pairs[1:]])


def _replayed(run: Run, stay: Collection[int], device: torch.device | None) -> Run:
    if device is None or device.type != "cuda" or not getattr(run, "owns_results", False):
        return run
    if getattr(run, "uses_host", False):
        warn_user("a graph isn't replayed as a CUDA graph, it runs as usual: it has tensors on the CPU", RuntimeWarning)
        return run
    return replayed(run, stay, device, record_cuda_graph(device, getattr(run, "draws", True)), cuda_stream(device))
