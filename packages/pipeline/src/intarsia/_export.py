"""`intarsia.export`: the tracer and the default pipeline, for `intarsia_export`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import intarsia_pyeval
import intarsia_recorder
import intarsia_runtime
import intarsia_tensorcapture
from intarsia._session import COMPILE_LOCK
from intarsia._stages import TABLES, cache_in, default_pipeline
from intarsia.levels import Emitted
from intarsia_dispatch import without_wrapper
from intarsia_export import Artefact
from intarsia_export.calls import Capturing
from intarsia_export.exporting import Backend, export_call
from intarsia_export.torch_programs import export_program, is_program
from intarsia_ir.choices import refuse_unknown
from intarsia_ir.interrupts import held_back

__all__ = ["export"]


def export(
    fn: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    **tables: Any,
) -> Artefact:
    """Return what runs `fn` in another process: `save` writes it as one file, `intarsia_export.load` reads it.

    Args:
        fn: A function, a bound method or a module, or an `ExportedProgram` of torch's. It becomes one graph, computed
            without gradients; its state and settings, training mode among them, are as they are now.
        args: Positional arguments of an example call.
        kwargs: Keyword arguments of it.
        dynamic_shapes: Which sizes vary, nested as the arguments: `{"x": {0: intarsia.Dim("batch", min=1, max=256)}}`,
            or with torch.export's `Dim`. None: none does.
        tables: Arguments of `intarsia.default_pipeline`.

    Raises:
        UnsupportedError: The call isn't one graph, or does what a file can't hold; the message has the line.
        InvalidArgumentError: An argument is wrong, or the program needs more of a size than its bounds.

    Example:
        >>> import torch, intarsia, intarsia_export
        >>> artefact = intarsia.export(lambda x: torch.sin(x) + 1, (torch.zeros(3),))
        >>> intarsia_export.program_of(artefact)(torch.zeros(3))
        tensor([1., 1., 1.])
    """
    refuse_unknown("keyword", tables, TABLES, code="compile.keyword")
    target = tables.get("target") or intarsia_runtime.detect_target()
    backend = Backend(
        Capturing(intarsia_tensorcapture.capture, intarsia_pyeval.link),
        default_pipeline(**{**tables, "target": target}).until(Emitted),
        intarsia_recorder.normalise,
        intarsia_recorder.lifted_values,
        cache_in(tables.get("cache_dir")),
        intarsia_runtime.__version__,
    )
    with COMPILE_LOCK, held_back():
        if is_program(fn):
            return export_program(fn, args, kwargs, dynamic_shapes, backend)
        return export_call(without_wrapper(fn), args, kwargs or {}, dynamic_shapes, backend)
