"""`Limited`: a policy for so many decisions, `Simple` from then on: what `fuel` of the pass means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from intarsia_ir.records import Target
from intarsia_loops.index import Atom
from intarsia_loops.program import Buffer, Kernel
from intarsia_scheduler.plan import Choice, SchedulePolicy
from intarsia_scheduler.simple import Simple

__all__ = ["Limited"]


class Limited:
    """Counts as a decision whatever isn't as `Simple` has it; on a CPU, how one kind of kernel is walked.

    What a grid can't do without is the policy's in any case: how a launch runs, and what is taken apart because it
    isn't one.

    Args:
        policy: Decides, as long as there is fuel.
        fuel: Number of decisions.
    """

    def __init__(self, policy: SchedulePolicy, fuel: int) -> None:
        self._policy, self._left, self._simple = policy, fuel, Simple()
        self.name, self.version = policy.name, policy.version

    def choose(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Mapping[str, Choice]:
        """Ask the policy, on a CPU one kind of kernel for a decision; those that are left are walked plainly."""
        if not target.is_gpu:
            if self._left <= 0:
                return {}
            self._left -= 1
        return self._policy.choose(kernel, buffers, target)

    def apart(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Ask the policy."""
        return self._policy.apart(kernel, buffers, target)

    def spread(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Ask the policy for one decision."""
        said = self._policy.spread(kernel, buffers, target)
        return self._or_simple(said, self._simple.spread(kernel, buffers, target))

    def cut(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Ask the policy for one decision."""
        return self._or_simple(self._policy.cut(kernel, buffers, target), self._simple.cut(kernel, buffers, target))

    def chunk(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Ask the policy for one decision."""
        return self._or_simple(self._policy.chunk(kernel, buffers, target), self._simple.chunk(kernel, buffers, target))

    def finish(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Ask the policy for one decision."""
        said = self._policy.finish(kernel, buffers, target)
        return self._or_simple(said, self._simple.finish(kernel, buffers, target))

    def merge(self, kernel: Kernel, inner: Sequence[Atom], buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Ask the policy for one decision."""
        said = self._policy.merge(kernel, inner, buffers, target)
        return self._or_simple(said, self._simple.merge(kernel, inner, buffers, target))

    def check(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Ask the policy for one decision."""
        said = self._policy.check(kernel, buffers, target)
        return self._or_simple(said, self._simple.check(kernel, buffers, target))

    def sets(self, target: Target) -> Choice:
        """Ask the policy for one decision."""
        return self._or_simple(self._policy.sets(target), self._simple.sets(target))

    def _or_simple(self, said: Choice, simple: Choice) -> Choice:
        if said.value == simple.value:
            return said
        if self._left <= 0:
            return Choice(simple.value, "no fuel is left", simple.others)
        self._left -= 1
        return said
