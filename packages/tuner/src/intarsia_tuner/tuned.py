"""`Tuned`: a policy that answers from a table of measured schedules, and asks another one where that says nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Target
from intarsia_loops.index import Atom
from intarsia_loops.program import Buffer, Kernel
from intarsia_scheduler import Choice, KernelPlan, Measured, SchedulePolicy, key_of
from intarsia_scheduler.grid.walk import walk_of
from intarsia_scheduler.vectors.answers import chosen
from intarsia_scheduler.vectors.questions import Question
from intarsia_tuner.table import Row, Table

__all__ = ["Tuned", "measured_for"]


@dataclass(frozen=True, slots=True)
class Tuned:
    """The policy. It measures nothing: a table of another machine may be given.

    Args:
        table: What it says of its target's kernels is taken, as far as a kernel can run so.
        policy: Decides the rest.

    Example:
        >>> Tuned(Table(Target(isa="avx2"))).name
        'measured, tuned'
    """

    table: Table
    policy: SchedulePolicy = field(default_factory=Measured)

    @property
    def name(self) -> str:
        """That of the policy, and that it is tuned."""
        return f"{self.policy.name}, tuned"

    @property
    def version(self) -> str:
        """That of the policy, and of the table."""
        return f"{self.policy.version} {hashlib.sha256(self.table.to_json().encode()).hexdigest()[:8]}"

    def choose(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Mapping[str, Choice]:
        """Return the table's choices for a kernel, where it can run so; else the policy's."""
        said = self.policy.choose(kernel, buffers, target)
        row = self._row(kernel, buffers, target)
        if row is None or not row.choices:
            return said
        if target.is_gpu:
            made = {word: _choice(row, word, choice) for word, choice in said.items()}
            return made if _is_walked(kernel, buffers, made) else said
        return chosen(kernel, buffers, target, self._rule(row, said))

    def _row(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Row | None:
        if measured_for(target) != measured_for(self.table.target):
            return None
        return self.table.rows.get(key_of(kernel, buffers))

    def _said(self, word: str, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """What the table says of how a kernel of a grid is split; else the policy."""
        said: Choice = getattr(self.policy, word)(kernel, buffers, target)
        row = self._row(kernel, buffers, target)
        return said if row is None else _choice(row, word, said)

    def _rule(self, row: Row, said: Mapping[str, Choice]) -> Callable[[str, Question], Choice]:
        """Answer a question by the row, where that can be; the policy knows what else there is."""

        def rule(word: str, question: Question) -> Choice:
            other = self._policy_answer(word, question, said)
            value = row.choices.get(word, other.value)
            if value == other.value or not question.allows(value):
                return other
            return Choice(value, _why(row), tuple(v for v in (other.value, *other.others) if v != value))

        return rule

    def _policy_answer(self, word: str, question: Question, said: Mapping[str, Choice]) -> Choice:
        answer: Callable[[str, Question], Choice] | None = getattr(self.policy, "answer", None)
        if answer is not None:
            return answer(word, question)
        if word in said and question.allows(said[word].value):
            return said[word]
        return Choice(question.plain, "nothing else was chosen")

    def answer(self, word: str, question: Question) -> Choice:
        """Answer a question as the policy does, where a plan that is completed has no choice."""
        return self._policy_answer(word, question, {})

    def apart(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Return the table's choice where the policy might make it, else the policy's."""
        return self._said("apart", kernel, buffers, target)

    def spread(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Return the table's choice where the policy might make it, else the policy's."""
        return self._said("spread", kernel, buffers, target)

    def cut(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Return the table's choice where the policy might make it, else the policy's."""
        return self._said("cut", kernel, buffers, target)

    def chunk(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Return the table's choice where the policy might make it, else the policy's."""
        return self._said("chunk", kernel, buffers, target)

    def finish(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Return the table's choice where the policy might make it, else the policy's."""
        return self._said("finish", kernel, buffers, target)

    def merge(self, kernel: Kernel, inner: Sequence[Atom], buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Ask the policy."""
        return self.policy.merge(kernel, inner, buffers, target)

    def check(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Ask the policy."""
        return self.policy.check(kernel, buffers, target)

    def sets(self, target: Target) -> Choice:
        """Ask the policy."""
        return self.policy.sets(target)


def measured_for(target: Target) -> Target:
    """Return what a table of a target is for: a GPU's kernels don't depend on the host's compiler and threads."""
    return replace(target, compiler="", threads=1) if target.is_gpu else target


def _choice(row: Row, word: str, said: Choice) -> Choice:
    """A row's value for a word of a grid's kernel, if it is one that the policy might choose."""
    value = row.choices.get(word, said.value)
    if value == said.value or value not in said.others:
        return said
    return Choice(value, _why(row), tuple(v for v in (said.value, *said.others) if v != value))


def _why(row: Row) -> str:
    return f"measured: {row.us:.1f} us a launch, {row.policy_us:.1f} by {row.policy}"


def _is_walked(kernel: Kernel, buffers: Mapping[str, Buffer], choices: Mapping[str, Choice]) -> bool:
    """Tell whether choices that may be, each for itself, may be together."""
    if "walk" not in choices:
        return True
    try:
        walk_of(kernel, buffers, KernelPlan("", choices))
    except InvalidArgumentError:
        return False
    return True
