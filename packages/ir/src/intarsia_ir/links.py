"""What exchanges between processes take: latency and bandwidth of the links (alpha and beta). Imports no torch.

Each kind of collective is counted as its usual algorithm runs it, on a ring, and broadcasts on a tree: rounds, each of
which costs the latency, and the bytes that a process sends, at the bandwidth of its link. With n processes and B bytes
of the whole tensor:

    all_reduce                                2 (n - 1) rounds, 2 B (n - 1) / n bytes
    all_gather, reduce_scatter, all_to_all    n - 1 rounds, B (n - 1) / n bytes
    broadcast                                 ceil(log2 n) rounds, B bytes

Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH", 2005.
"""

from __future__ import annotations

from dataclasses import dataclass

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.target import Target

__all__ = ["KINDS", "Exchange", "Links", "kind_of"]

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")


def kind_of(name: str) -> str | None:
    """Return which collective an operator of torch begins; None for other operators, and those that wait.

    Example:
        >>> kind_of("_c10d_functional::all_gather_into_tensor"), kind_of("_c10d_functional::wait_tensor")
        ('all_gather', None)
    """
    library, _, op = name.partition("::")
    if library != "_c10d_functional":
        return None
    op = op.removesuffix("_coalesced").removesuffix("_into_tensor").removesuffix("_tensor").removesuffix("_single")
    return op if op in KINDS else None


@dataclass(frozen=True, slots=True)
class Exchange:
    """One collective.

    Args:
        kind: One of `KINDS`.
        group: Name of the group of processes.
        ranks: How many processes are in it.
        bytes: Of the whole tensor: what an all_gather gives, what a reduce_scatter takes.
    """

    kind: str
    group: str
    ranks: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Links:
    """What joins the processes: alpha and beta.

    Args:
        latency_us: Microseconds of one round of a collective, whatever it sends (alpha).
        gb_per_s: What a process sends, in 1e9 bytes per second (1 / beta).

    Raises:
        InvalidArgumentError: `links.value`: the latency is negative, or the bandwidth isn't positive.

    Example:
        >>> ring = Links(latency_us=10.0, gb_per_s=1.0)
        >>> ring.microseconds(Exchange("all_reduce", "0", 4, 1_000_000))
        1560.0
        >>> ring.microseconds(Exchange("all_reduce", "0", 1, 1_000_000))
        0.0
    """

    latency_us: float
    gb_per_s: float

    def __post_init__(self) -> None:
        if not (self.latency_us >= 0 and self.gb_per_s > 0):
            raise InvalidArgumentError(
                f"links need a latency that isn't negative and a bandwidth above 0, not {self}", code="links.value"
            )

    @classmethod
    def of(cls, target: Target) -> Links:
        """Return the links of a machine: between its GPUs, or between processes on its CPU."""
        return cls(target.machine.link_us, target.machine.link_gb_per_s)

    def microseconds(self, exchange: Exchange) -> float:
        """Return the predicted time of one collective, from the moment that all have begun it.

        Raises:
            InvalidArgumentError: `links.kind`: no kind of collective has this name.
        """
        rounds, share = _rounds(exchange.kind, exchange.ranks)
        return rounds * self.latency_us + share * exchange.bytes / (self.gb_per_s * 1e3)


def _rounds(kind: str, ranks: int) -> tuple[int, float]:
    """Return the rounds of a collective, and what a process sends as a share of the whole."""
    if kind not in KINDS:
        raise InvalidArgumentError(f"no collective is named {kind!r}", code="links.kind", hints=KINDS)
    if ranks <= 1:
        return 0, 0.0
    if kind == "broadcast":
        return (ranks - 1).bit_length(), 1.0
    passes = 2 if kind == "all_reduce" else 1
    return passes * (ranks - 1), passes * (ranks - 1) / ranks
