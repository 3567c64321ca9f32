"""A policy that answers the questions of a CPU's plan at random."""

from __future__ import annotations

import random

from intarsia_scheduler import Choice, Simple
from intarsia_scheduler.measured.vectors import vector_rule
from intarsia_scheduler.vectors.answers import chosen
from intarsia_scheduler.vectors.questions import Answer, Order, Question, Shape
from intarsia_testkit.fired import Tally

SAID = (
    "Narrow", "Vector", "Least", "Shape", "Order", "Lane", "Accumulators", "Lines", "Chain", "Who", "Parts", "Keep",
    "Tile", "Pieces", "PointLane", "Split", "Hoist", "Gather",
)  # fmt: skip
TALLY = Tally("cpp: questions that were answered otherwise than by the rules", [s for s in SAID if s != "Vector"])


class AtRandom(Simple):
    """A policy that says at random what may be said."""

    name, version = "at random", "1"

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        object.__setattr__(self, "rng", rng)

    def choose(self, kernel, buffers, target):
        return {**super().choose(kernel, buffers, target), **chosen(kernel, buffers, target, self.say)}

    def say(self, word: str, question: Question) -> Choice:
        rule = vector_rule(word, question)
        ways = [w for w in (*rule.others, *self.ways(question)) if question.allows(w)]
        made = self.rng.choice([rule.value, question.plain, *ways])
        if made != rule.value:
            TALLY.count(type(question).__name__)
        return Choice(made, "at random")

    def ways(self, question: Question) -> list[Answer]:
        numbers: list[Answer] = [-1, *range(9), 16, 100]
        if isinstance(question, Order):
            order = str(question.plain).split()
            self.rng.shuffle(order)
            return [" ".join(order)]
        if isinstance(question, Shape):
            wide = [question.lanes * k for k in (1, 2, 3)]
            return [f"columns {k} {n}" for k in range(len(question.rows)) for n in wide]
        return [*numbers, *(f"{k} {n}" for k in range(3) for n in (8, 16, 32, 64)), "heap", "loops"]
