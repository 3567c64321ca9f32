"""Who answers for a kernel on a CPU: a plan, a policy, or nobody, which gets what is plain."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Target
from intarsia_loops.program import Buffer, Kernel
from intarsia_loops.vectors.walks import VectorWalk
from intarsia_scheduler.plan import Choice
from intarsia_scheduler.vectors.questions import Answer, Question
from intarsia_scheduler.vectors.walk import vector_walk

__all__ = ["Rule", "chosen", "walked"]

Rule = Callable[[str, Question], Choice]


def chosen(kernel: Kernel, buffers: Mapping[str, Buffer], target: Target, rule: Rule) -> dict[str, Choice]:
    """Return what a rule says to each question about a kernel.

    Args:
        kernel: In canonical form.
        buffers: Layout of every buffer in memory.
        target: What for.
        rule: Takes a word of the plan and the question that it answers.
    """
    found: dict[str, Choice] = {}

    def ask(word: str, question: Question) -> Answer:
        found[word] = rule(word, question)
        return found[word].value

    vector_walk(kernel, buffers, target, ask)
    return found


def walked(
    kernel: Kernel,
    buffers: Mapping[str, Buffer],
    target: Target,
    choices: Mapping[str, Choice],
    rule: Rule | None = None,
) -> tuple[VectorWalk, dict[str, Choice]]:
    """Return how a kernel is walked by these choices, and those that were missing.

    Args:
        kernel: In canonical form.
        buffers: Layout of every buffer in memory.
        target: What for.
        choices: By their words in the plan.
        rule: Makes those that are missing; None: they are plain.

    Raises:
        InvalidArgumentError: `schedule.choice`: a choice isn't one of this kernel's.
    """
    missing: dict[str, Choice] = {}

    def ask(word: str, question: Question) -> Answer:
        if word not in choices:
            plain = Choice(question.plain, "nothing else was chosen")
            missing[word] = rule(word, question) if rule is not None else plain
            return missing[word].value
        value = choices[word].value
        if not question.allows(value):
            raise InvalidArgumentError(
                f"a kernel that writes {', '.join(kernel.writes())} can't run with {word} {value!r}",
                code="schedule.choice",
            )
        return value

    return vector_walk(kernel, buffers, target, ask), missing
