"""The stages of a pipeline that compute what follows from a model's weights once, and the guards that they need."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import torch

from intarsia_ir.pipeline import Pipeline, Stage
from intarsia_ir.records import GuardRecord
from intarsia_ir.values import Functional
from intarsia_rewrites.fold_batch_norm import fold_batch_norm
from intarsia_rewrites.fold_values import fold_values
from intarsia_rewrites.join_linear import join_linear
from intarsia_rewrites.pack_convolutions import pack_convolutions
from intarsia_rewrites.prefer_channels_last import prefer_channels_last

__all__ = ["GRADIENTS", "frozen"]

Weight = tuple[torch.Tensor, tuple[GuardRecord, ...]]
GRADIENTS = "not frozen: gradients are recorded; call under torch.no_grad() or torch.inference_mode()"


def frozen(
    pipeline: Pipeline,
    weights: Mapping[str, Weight],
    refuse: Callable[[str], None],
    packed: Collection[torch.dtype] = (),
) -> Pipeline:
    """Return stages with those for frozen weights among them.

    `fold_batch_norm` and `join_linear` come before what depends on the machine, `fold_values` and
    `pack_convolutions` before the partition.
    Guards of what is folded are added. A graph with gradients is left as it is, and so are weights that it writes.

    Args:
        pipeline: Stages that have `prefer_channels_last` and `partition`, as the default ones do.
        weights: Name of an input -> its value, and the guards that hold as long as it stays.
        refuse: Told why a graph isn't frozen.
        packed: Element types whose convolutions the CPU's library packs.

    Raises:
        InvalidArgumentError: One of these stages isn't there.
    """

    def held(p: Functional) -> dict[str, torch.Tensor]:
        written = {spec.name for spec in p.signature.inputs if spec.written}
        return {} if p.signature.joint else {name: w[0] for name, w in weights.items() if name not in written}

    def rewritten(rewrite: Any, p: Functional, fuel: int | None) -> Functional:
        return replace(p, graph_module=rewrite(p.graph_module, known=held(p), fuel=fuel, check=False))

    def folded(rewrite: Any, p: Functional, fuel: int | None) -> Functional:
        if p.signature.joint:
            if rewrite is fold_values:
                refuse(GRADIENTS)
            return p
        how: dict[str, Any] = {"fuel": fuel, "check": False}
        how |= {"dtypes": packed} if rewrite is pack_convolutions else {}
        done = rewrite(p.graph_module, values=held(p), **how)
        guards = [guard for name in done.read for guard in weights[name][1] if guard not in p.guards]
        return replace(p, graph_module=done.graph_module, guards=(*p.guards, *guards))

    def stage(name: str, run: Callable[..., Functional]) -> Stage:
        return Stage(name, Functional, Functional, run, trusted=True, counts=True)

    for rewrite in (fold_batch_norm, join_linear):
        run = functools.partial(rewritten, rewrite)
        pipeline = pipeline.before(prefer_channels_last.__name__, stage(rewrite.__name__, run))
    storing: Any
    for storing in (fold_values, pack_convolutions):
        pipeline = pipeline.before("partition", stage(storing.__name__, functools.partial(folded, storing)))
    return pipeline
