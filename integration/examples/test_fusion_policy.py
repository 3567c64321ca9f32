"""For a researcher on fusion: a policy of one's own in twenty lines, compared with the shipped ones."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

import intarsia
import intarsia_functionalizer
import intarsia_loops
import intarsia_lowering
from intarsia_fuser import Decision, Fuse, FusionGraph, FusionPlan, Greedy, InductorLike, NoFusion, apply, plan
from intarsia_loops import kernels
from intarsia_loops.program import Kernel
from integration.models import make


@dataclass(frozen=True)
class FirstFit:
    """Merge each kernel into the first earlier neighbour that it can legally join; never inline."""

    name: str = "first_fit"
    version: str = "1"

    def decide(self, graph: FusionGraph) -> Iterator[Decision]:
        for kernel in graph.kernels:
            if kernel not in graph.kernels:
                continue  # an earlier merge took it
            for pair in graph.neighbours(kernel):
                decision = Fuse(pair.first, pair.second, graph.depth(pair.first, pair.second), why="first fit")
                if pair.second == kernel and graph.check(decision):
                    yield decision
                    break


def lowered(name: str):
    model, inputs = make(name)
    with torch.no_grad():
        aten = intarsia_functionalizer.functionalize(intarsia_functionalizer.to_aten(model, inputs))
    return intarsia_lowering.lower(aten.graph_module, facts=aten.facts), inputs


def test_my_policy_beside_the_shipped_ones():
    gm, inputs = lowered("softmax")
    (expected,) = intarsia_loops.loops.interpret(gm, *inputs)
    counts = {}
    for policy in (NoFusion(), FirstFit(), InductorLike(), Greedy()):
        made = plan(gm, policy=policy)
        fused = apply(gm, made)
        torch.testing.assert_close(kernels.interpret(fused, *inputs)[0], expected)
        counts[policy.name] = sum(isinstance(i, Kernel) for i in intarsia_loops.from_fx(fused).items)
        # the plan is data: it can be saved, compared, and replayed to the same kernels
        again = FusionPlan.from_json(made.to_json())
        assert again == made and kernels.print_ir(apply(gm, again)) == kernels.print_ir(fused)
    assert counts["greedy"] == 1 < counts["first_fit"] < counts["no_fusion"], counts


def test_my_policy_inside_the_compiler():
    model, inputs = make("softmax")
    intarsia.reset()
    fast = intarsia.compile(model, pipeline=intarsia.default_pipeline(policy=FirstFit()), options={"on_error": "raise"})
    torch.testing.assert_close(fast(*inputs), model(*inputs))
    assert intarsia.stats().graphs == 1 and intarsia.stats().fallbacks == 0
