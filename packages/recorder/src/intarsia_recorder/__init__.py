"""Record what a PyTorch program does, as a graph of ATen ops, by running it on fake tensors.

Dialect in: FX(torch), or any Python callable. Dialect out: FX(aten, effects): views, writes and random ops in program
order, decompositions applied, a value and origins on every node. The recorder sits below autograd, so a program may
differentiate: `Recorder` and `recording` are what a joint forward and backward graph is recorded with.

Example:
    >>> import torch
    >>> from intarsia_recorder import record
    >>> recorded = record(lambda x, w: torch.relu(x @ w), (torch.zeros(4, 8), torch.zeros(8, 2)))
    >>> [str(node.target) for node in recorded.graph_module.graph.nodes if node.op == "call_function"]
    ['aten.mm.default', 'aten.relu.default']
"""

from intarsia_recorder._fx import graph_module
from intarsia_recorder.apart import are_apart
from intarsia_recorder.composites import call_as_in_eager, composites_in_python
from intarsia_recorder.eager import EagerMode
from intarsia_recorder.element_types import refused_types
from intarsia_recorder.environment import ShapeEnvironment
from intarsia_recorder.metacache import MetaCache, snapshot
from intarsia_recorder.normalise import lifted_values, normalise
from intarsia_recorder.record import record, recording
from intarsia_recorder.recorder import Decompositions, Recorder
from intarsia_recorder.recurrent import WholeRecurrent
from intarsia_recorder.statistics import statistics_of_parameters
from intarsia_recorder.symbols import SymbolTable

__all__ = [
    "Decompositions",
    "EagerMode",
    "MetaCache",
    "Recorder",
    "ShapeEnvironment",
    "SymbolTable",
    "WholeRecurrent",
    "are_apart",
    "call_as_in_eager",
    "composites_in_python",
    "graph_module",
    "lifted_values",
    "normalise",
    "record",
    "recording",
    "refused_types",
    "snapshot",
    "statistics_of_parameters",
]

__version__ = "0.1.1"
