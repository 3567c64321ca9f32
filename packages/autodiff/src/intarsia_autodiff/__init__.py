"""Joint graphs of a program and its gradients, and their partition into a forward and a backward graph.

Dialect in: FX(torch), for `joint_graph`; FX(aten), pure, for `partition`. Dialect out: FX(aten, effects), with
`Signature.joint`; two graphs of FX(aten), pure, with `Halves`.

Example:
    >>> import torch
    >>> joint = joint_graph(lambda x, w: torch.relu(x @ w), (torch.zeros(4, 8), torch.zeros(8, 2, requires_grad=True)))
    >>> halves = partition(joint, SaveAll()).partition
    >>> [str(n.target) for n in halves.backwards[0].graph_module.graph.nodes if n.op == "call_function"][-3:]
    ['aten.where.self', 'aten.t.default', 'aten.mm.default']
"""

from intarsia_autodiff.decompositions import backward_decompositions
from intarsia_autodiff.joint_graph import joint_graph
from intarsia_autodiff.partition import Partitioned, partition, partition_problem
from intarsia_autodiff.plan import PartitionPlan
from intarsia_autodiff.policies import Budget, MinCut, Policy, RecomputeAll, SaveAll
from intarsia_autodiff.problem import Problem, Recompute, Value

__all__ = [
    "Budget",
    "MinCut",
    "PartitionPlan",
    "Partitioned",
    "Policy",
    "Problem",
    "Recompute",
    "RecomputeAll",
    "SaveAll",
    "Value",
    "backward_decompositions",
    "joint_graph",
    "partition",
    "partition_problem",
]

__version__ = "0.1.1"
