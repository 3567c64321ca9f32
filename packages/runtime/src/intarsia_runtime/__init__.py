"""Build, cache, load and launch kernels, and give a graph's results their meaning.

Takes FX(kernels) with the `KernelSource` that an emitter made of it, and gives a Python callable:

    target = detect_target()                              # ISA, compiler, threads of this machine
    library = build(source, target, cache=Cache(folder))  # compiled at most once for each text and machine
    run = link(kernels, source, library)                  # straight-line Python around native calls; `run.source`
    call = with_epilogue(run, signature)                  # writes into inputs, aliases, fresh outputs

Example:
    >>> import tempfile, torch
    >>> from intarsia_ir.records import KernelSource, Launch
    >>> text = 'extern "C" void seg0(float* x, float* y) { for (int i = 0; i < 4; i++) y[i] = x[i] + 1; }'
    >>> source = KernelSource(text, "cpp", launches=(Launch("seg0", ("x", "y")),))
    >>> library = build(source, detect_target(), cache=Cache(tempfile.mkdtemp()))
    >>> x, y = torch.zeros(4), torch.empty(4)
    >>> library.launcher("seg0", 2)(x.data_ptr(), y.data_ptr())
    >>> y
    tensor([1., 1., 1., 1.])
"""

from intarsia_runtime.again import Rerun, rerun_of
from intarsia_runtime.as_written import raises_as_written, run_as_written
from intarsia_runtime.assemble import assembled
from intarsia_runtime.bodies import with_bodies
from intarsia_runtime.build import build, machine_code
from intarsia_runtime.cache import Cache, cache_folder_of_user
from intarsia_runtime.cuda_unit import segments
from intarsia_runtime.epilogue import with_epilogue
from intarsia_runtime.foreign import compile_by
from intarsia_runtime.library import Library
from intarsia_runtime.link import Runner, link
from intarsia_runtime.linked import Linked
from intarsia_runtime.modes import mode_options
from intarsia_runtime.processes import group_size
from intarsia_runtime.profiling import graph_name
from intarsia_runtime.replay import Recording, replayed
from intarsia_runtime.target import convolved_by_matrix_units, detect_target, nan_gelu, packed_by_library
from intarsia_runtime.training import with_backward
from intarsia_runtime.triton_build import prepare

__version__ = "0.1.1"

__all__ = [
    "Cache",
    "Library",
    "Linked",
    "Recording",
    "Rerun",
    "Runner",
    "assembled",
    "build",
    "cache_folder_of_user",
    "compile_by",
    "convolved_by_matrix_units",
    "detect_target",
    "graph_name",
    "group_size",
    "link",
    "machine_code",
    "mode_options",
    "nan_gelu",
    "packed_by_library",
    "prepare",
    "raises_as_written",
    "replayed",
    "rerun_of",
    "run_as_written",
    "segments",
    "with_backward",
    "with_bodies",
    "with_epilogue",
]
