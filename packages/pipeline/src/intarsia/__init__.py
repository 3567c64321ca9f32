"""`intarsia.compile(model)`: the passes of the other packages, composed.

Example:
    >>> import torch, intarsia
    >>> fast = intarsia.compile(lambda x, y: torch.softmax(x * 2 + torch.sin(y), dim=-1))
    >>> x, y = torch.randn(4, 8), torch.randn(4, 8)
    >>> torch.testing.assert_close(fast(x, y), torch.softmax(x * 2 + torch.sin(y), dim=-1))
"""

from intarsia._backends import list_backends, register_backend
from intarsia._compile import compile, compile_module_, explain
from intarsia._export import export
from intarsia._options import Options
from intarsia._session import compiled_code, fusion_plans, reset, stats
from intarsia._stages import default_cache_dir, default_pipeline
from intarsia._stats import Stats
from intarsia_dispatch import configure_logging, disable
from intarsia_export import Dim
from intarsia_ir.errors import IntarsiaError, InvalidArgumentError, RuntimeFault, UnsupportedError
from intarsia_ir.pipeline import Pipeline, Planned, Stage
from intarsia_ir.records import Target
from intarsia_loops.kernels import KernelSummary
from intarsia_report import Explanation, GraphSummary
from intarsia_shapes import mark_dynamic, mark_static
from intarsia_tensorcapture import allow_in_graph, substitute_in_graph

__all__ = [
    "Dim",
    "Explanation",
    "GraphSummary",
    "IntarsiaError",
    "InvalidArgumentError",
    "KernelSummary",
    "Options",
    "Pipeline",
    "Planned",
    "RuntimeFault",
    "Stage",
    "Stats",
    "Target",
    "UnsupportedError",
    "allow_in_graph",
    "compile",
    "compile_module_",
    "compiled_code",
    "configure_logging",
    "default_cache_dir",
    "default_pipeline",
    "disable",
    "explain",
    "export",
    "fusion_plans",
    "list_backends",
    "mark_dynamic",
    "mark_static",
    "register_backend",
    "reset",
    "stats",
    "substitute_in_graph",
]
__version__ = "0.1.1"
