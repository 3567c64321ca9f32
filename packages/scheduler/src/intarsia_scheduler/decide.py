"""Who answers while kernels are arranged: a policy, whose answers are kept, or a plan, which has them.

Both go through the same code (`arrange.py`), so a plan replays by construction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Target
from intarsia_loops.index import Atom
from intarsia_loops.program import Buffer, Kernel
from intarsia_loops.rewrites import canonical
from intarsia_loops.vectors.walks import VectorWalk
from intarsia_scheduler.plan import CHOICES, Choice, KernelPlan, Merge, SchedulePlan, SchedulePolicy, key_of
from intarsia_scheduler.vectors.answers import walked

__all__ = ["Asked", "Decide", "Replayed", "kind_of"]

Kind = tuple[Kernel, tuple[tuple[str, Buffer], ...]]


def kind_of(kernel: Kernel, buffers: Mapping[str, Buffer]) -> tuple[Kernel, dict[str, Buffer], tuple[str, ...]]:
    """Return the canonical form of a kernel, the layouts of its buffers, and their real names."""
    form, names = canonical(kernel)
    return form, {f"b{k}": buffers[name] for k, name in enumerate(names) if name in buffers}, names


class Decide(Protocol):
    """What is asked. Kernels come in canonical form, but for `merge` and `check`, whose answer belongs to a place."""

    @property
    def target(self) -> Target:
        """What for."""

    def merge(
        self, parts: tuple[int, int], kernel: Kernel, inner: Sequence[Atom], buffers: Mapping[str, Buffer]
    ) -> bool:
        """Tell whether parts of the program become one kernel; `inner`: points that it walks again, if any."""

    def check(self, parts: tuple[int, int], kernel: Kernel, buffers: Mapping[str, Buffer]) -> bool:
        """Tell whether a check becomes an assertion of a kernel, which then is one launch."""

    def of(self, word: str, kernel: Kernel, buffers: Mapping[str, Buffer]) -> str | int:
        """Return the choice of `apart`, `spread`, `cut`, `chunk` or `finish` for a kernel."""

    def walk(self, kernel: Kernel, buffers: Mapping[str, Buffer]) -> KernelPlan:
        """Return how a kernel that is launched runs."""

    def vectors(self, kernel: Kernel, buffers: Mapping[str, Buffer]) -> VectorWalk:
        """Return how a kernel that `walk` was asked for is walked on a CPU."""

    def sets(self) -> int:
        """Return how many sets of buffers a launch takes at most."""


class Asked:
    """Asks a policy, once for each kind of kernel, and keeps what it says."""

    def __init__(self, policy: SchedulePolicy, target: Target, given: SchedulePlan | None = None) -> None:
        self.policy, self.target, self._given = policy, target, given
        self._merges: list[Merge] = []
        self._kinds: dict[Kind, dict[str, Choice]] = {}
        self._walks: dict[Kind, VectorWalk] = {}
        self._sets = policy.sets(target) if given is None else given.sets

    def merge(
        self, parts: tuple[int, int], kernel: Kernel, inner: Sequence[Atom], buffers: Mapping[str, Buffer]
    ) -> bool:
        """Ask, and keep a merge that is made."""
        return self._made(parts, self._said(parts) or self.policy.merge(kernel, inner, buffers, self.target))

    def check(self, parts: tuple[int, int], kernel: Kernel, buffers: Mapping[str, Buffer]) -> bool:
        """Ask, and keep a merge that is made."""
        return self._made(parts, self._said(parts) or self.policy.check(kernel, buffers, self.target))

    def _said(self, parts: tuple[int, int]) -> Choice | None:
        if self._given is None:
            return None
        found = next((m for m in self._given.merges if m.parts == parts), None)
        return Choice(int(found is not None), found.why if found is not None else "it wasn't given")

    def _made(self, parts: tuple[int, int], choice: Choice) -> bool:
        if choice.value:
            self._merges.append(Merge(parts, choice.why))
        return bool(choice.value)

    def of(self, word: str, kernel: Kernel, buffers: Mapping[str, Buffer]) -> str | int:
        """Ask, unless a kernel of this kind came before."""
        found = self._choices(kernel, buffers)
        if word not in found:
            found[word] = getattr(self.policy, word)(kernel, buffers, self.target)
        return found[word].value

    def walk(self, kernel: Kernel, buffers: Mapping[str, Buffer]) -> KernelPlan:
        """Ask, unless a kernel of this kind came before."""
        found = self._choices(kernel, buffers)
        words = _words(self.target)
        if not found or any(word not in found for word in words):
            made = self.policy.choose(kernel, buffers, self.target)
            missing = [word for word in words if word not in made]
            if missing:
                raise InvalidArgumentError(
                    f"policy {self.policy.name!r} doesn't choose {', '.join(missing)}", code="schedule.policy"
                )
            found.update(made)
        return KernelPlan("", found)

    def vectors(self, kernel: Kernel, buffers: Mapping[str, Buffer]) -> VectorWalk:
        """Make it of what was said; what wasn't is the policy's `answer`, if it has one, or plain, and kept as well."""
        kind = (kernel, tuple(buffers.items()))
        if kind not in self._walks:
            found = self._choices(kernel, buffers)
            rule = getattr(self.policy, "answer", None)
            self._walks[kind], missing = walked(kernel, buffers, self.target, found, rule)
            found.update(missing)
        return self._walks[kind]

    def sets(self) -> int:
        """Return what the policy said."""
        return int(self._sets.value)

    def _choices(self, kernel: Kernel, buffers: Mapping[str, Buffer]) -> dict[str, Choice]:
        kind = (kernel, tuple(buffers.items()))
        if kind not in self._kinds:
            self._kinds[kind] = {}
            if self._given is not None and (found := self._given.get(key_of(kernel, buffers))) is not None:
                self._kinds[kind].update(found.choices)
        return self._kinds[kind]

    def plan(self) -> SchedulePlan:
        """Return everything that was said."""
        kernels = tuple(KernelPlan(key_of(k, dict(b)), dict(found)) for (k, b), found in self._kinds.items())
        name = f"{self.policy.name} {self.policy.version}"
        return SchedulePlan(self.target, name, tuple(k for k in kernels if k.choices), tuple(self._merges), self._sets)


class Replayed:
    """Looks up what a plan says."""

    def __init__(self, plan: SchedulePlan) -> None:
        self.target, self._plan = plan.target, plan
        self._merges = {m.parts for m in plan.merges}
        self._kinds: dict[Kind, KernelPlan] = {}
        self._walks: dict[Kind, VectorWalk] = {}

    def merge(
        self, parts: tuple[int, int], kernel: Kernel, inner: Sequence[Atom], buffers: Mapping[str, Buffer]
    ) -> bool:
        """Tell whether the plan has this merge."""
        return parts in self._merges

    def check(self, parts: tuple[int, int], kernel: Kernel, buffers: Mapping[str, Buffer]) -> bool:
        """Tell whether the plan has this merge."""
        return parts in self._merges

    def of(self, word: str, kernel: Kernel, buffers: Mapping[str, Buffer]) -> str | int:
        """Look a choice up."""
        return self._found(kernel, buffers, (word,)).choices[word].value

    def walk(self, kernel: Kernel, buffers: Mapping[str, Buffer]) -> KernelPlan:
        """Look the choices for a launch up."""
        return self._found(kernel, buffers, _words(self.target))

    def vectors(self, kernel: Kernel, buffers: Mapping[str, Buffer]) -> VectorWalk:
        """Make it of what the plan says."""
        kind = (kernel, tuple(buffers.items()))
        if kind not in self._walks:
            found = self.walk(kernel, buffers)
            self._walks[kind], missing = walked(kernel, buffers, self.target, found.choices)
            _demand(found, *missing)
        return self._walks[kind]

    def sets(self) -> int:
        """Return what the plan says."""
        return int(self._plan.sets.value)

    def _found(self, kernel: Kernel, buffers: Mapping[str, Buffer], words: Sequence[str]) -> KernelPlan:
        kind = (kernel, tuple(buffers.items()))
        if kind not in self._kinds:
            self._kinds[kind] = self._plan.of(key_of(kernel, buffers))
        found = self._kinds[kind]
        _demand(found, *[word for word in words if word not in found.choices])
        return found


def _words(target: Target) -> tuple[str, ...]:
    """What a policy says of every kernel; on a CPU, questions may be left plain."""
    return CHOICES if target.is_gpu else ()


def _demand(found: KernelPlan, *missing: str) -> None:
    """Refuse a plan that says nothing of these words."""
    if missing:
        raise InvalidArgumentError(
            f"the plan says nothing of {', '.join(missing)} for kernel {found.key}; it is for another program",
            code="schedule.kernel",
            hints=("complete an edited plan with schedule(..., given=plan)",),
        )
