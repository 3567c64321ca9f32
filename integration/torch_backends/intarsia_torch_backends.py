"""The backends that torch.compile has built in, by name, for `intarsia.compile(backend=...)`.

A plug-in: our packages reach none of the compilers of torch. Installed, its names are entry points; from source,
`register()` does the same. What third parties install for torch.compile is found without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._dynamo

import intarsia

__all__ = ["aot_eager", "aot_eager_decomp_partition", "cudagraphs", "inductor", "register"]


def _named(name: str) -> Callable[..., Any]:
    """Return a backend of torch's; where sizes are symbols, it compiles anew for other sizes.

    These backends learn about symbols from the front end of torch.compile only: without it, they take the sizes that
    they are given for constants.
    """

    def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        compile_one = torch._dynamo.lookup_backend(name)
        compiled = {_layouts(example_inputs): compile_one(gm, example_inputs)}

        def run(*inputs: Any) -> Any:
            key = _layouts(inputs)
            if key not in compiled:
                compiled[key] = compile_one(gm, list(inputs))
            return compiled[key](*inputs)

        return run

    backend.__name__ = name
    return backend


def _layouts(inputs: Sequence[Any]) -> tuple[Any, ...]:
    return tuple((tuple(x.shape), x.stride()) if isinstance(x, torch.Tensor) else x for x in inputs)


inductor = _named("inductor")
aot_eager = _named("aot_eager")
aot_eager_decomp_partition = _named("aot_eager_decomp_partition")
cudagraphs = _named("cudagraphs")


def register() -> tuple[str, ...]:
    """Register every backend that torch.compile lists, but for those that we have ourselves; return their names."""
    names = tuple(
        n for n in torch._dynamo.list_backends(exclude_tags=()) if n not in (*intarsia.list_backends(), "intarsia")
    )
    for name in names:
        intarsia.register_backend(name, _named(name))
    return names
