"""A partition as data: what is saved, what is computed again. It prints, goes through JSON, and can be replayed."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from intarsia_autodiff.problem import Problem
from intarsia_ir.errors import InvalidArgumentError

__all__ = ["PartitionPlan"]

_VERSION = 1


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """Which values go from the forward graph to the backward graph.

    Args:
        policy: What chose, as text.
        saved: Names of saved values, in program order.
        recomputed: Names of values that the backward graph computes again, in program order.
        n_bytes: Bytes saved; what is alive anyway, such as parameters, counts nothing.

    Example:
        >>> plan = PartitionPlan("mine", ("x",), ("y",), 40)
        >>> PartitionPlan.from_json(plan.to_json()) == plan
        True
        >>> print(plan)
        mine: saves 40 bytes in 1 value, computes 1 value again
          saved: x
          recomputed: y
    """

    policy: str
    saved: tuple[str, ...]
    recomputed: tuple[str, ...]
    n_bytes: int

    def to_json(self) -> str:
        """Return the plan as JSON text."""
        return json.dumps({"version": _VERSION, **asdict(self)}, indent=1)

    @staticmethod
    def from_json(text: str) -> PartitionPlan:
        """Return the plan that `to_json` gave as text.

        Raises:
            InvalidArgumentError: The text isn't a plan of this version.
        """
        try:
            data = json.loads(text)
            if data.pop("version") != _VERSION:
                raise ValueError(f"it isn't of version {_VERSION}")
            return PartitionPlan(
                str(data["policy"]), tuple(data["saved"]), tuple(data["recomputed"]), int(data["n_bytes"])
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidArgumentError(f"this isn't a partition plan: {error}", code="partition.plan") from error

    def choose(self, problem: Problem) -> set[str]:
        """Choose again what this plan chose: a plan is a policy."""
        return set(self.saved)

    def __str__(self) -> str:
        head = f"{self.policy}: saves {self.n_bytes} bytes in {_count(self.saved)}"
        head += f", computes {_count(self.recomputed)} again"
        return f"{head}\n  saved: {', '.join(self.saved) or '-'}\n  recomputed: {', '.join(self.recomputed) or '-'}"


def _count(names: tuple[str, ...]) -> str:
    return f"{len(names)} value{'s' * (len(names) != 1)}"
