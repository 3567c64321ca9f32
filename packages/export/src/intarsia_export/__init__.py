"""Programs in a file, that another process loads and runs without the tracer: text, machine code, weights; no pickle.

    artefact = intarsia.export(model, (x,), dynamic_shapes={"x": {0: Dim("batch", min=1, max=256)}})
    artefact.save("model.safetensors")           # in a process with the compiler
    model = intarsia_export.load("model.safetensors")     # in one without
    model(x)

This package is what the second process needs. Given something that captures and something that compiles, it also makes
artefacts (`export_call`); `intarsia.export` is that, with the tracer and the default pipeline.

Example:
    >>> Dim("batch", max=8)
    Dim(name='batch', min=1, max=8)
"""

from intarsia_export.contents import Artefact, MadeOn, Variant, read
from intarsia_export.dims import Dim
from intarsia_export.loading import Program, load, program_of

__version__ = "0.1.1"
__all__ = ["Artefact", "Dim", "MadeOn", "Program", "Variant", "load", "program_of", "read"]
