"""Models of transformers, each from the configuration of its class made small."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from integration.sweep.cases import Case, Inputs
from integration.sweep.configs import BATCH, attempts, shrink

__all__ = ["built", "families", "version"]


def version() -> str:
    import transformers
    import transformers.models.auto.modeling_auto

    return str(transformers.__version__)


def families() -> dict[str, str]:
    """Return the types of models that transformers has, and the class of each."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return {kind: names if isinstance(names, str) else names[0] for kind, names in MODEL_MAPPING_NAMES.items()}


def built(name: str) -> Case:
    import transformers

    torch.manual_seed(0)
    made = getattr(transformers, families()[name])
    model = made(shrink(made.config_class())).eval()
    inputs = next(runs(model, BATCH))
    others = (next(runs(model, batch, only=set(inputs)), None) for batch in (BATCH + 1, BATCH + 3))
    return Case(model, inputs, tuple(each for each in others if each is not None))


def runs(model: torch.nn.Module, batch: int, only: set[str] | None = None) -> Iterator[Inputs]:
    """Yield the arguments with which eager runs; raise the last error where there are none."""
    last: Exception | None = None
    found = False
    for inputs in attempts(model, batch):
        if only is not None and set(inputs) != only:
            continue
        try:
            with torch.no_grad():
                model(**inputs)
        except Exception as error:  # the next arguments may do
            last = error
            continue
        found = True
        yield inputs
    if not found and only is None:
        raise last or ValueError("no arguments are known for it")
