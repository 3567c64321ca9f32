"""What programs are compiled for: a device's architecture and the numbers that decisions read. Imports no torch.

A decision that depends on a machine (which layout, what fuses, how many rows a program takes) gets a `Target` and reads
its `machine`. The numbers come from the table below, by name; whoever asks a device (the pipeline's edge) or measures
it passes what was found as `measured`. A device that the table doesn't have is compiled for only with that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

__all__ = ["MACHINES", "Machine", "Target", "nearest_machine"]

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Machine:
    """The numbers of a processor that decisions read.

    Args:
        kind: `"cpu"`: a loop a thread; `"gpu"`: a grid of programs, each of many lanes.
        processors: Cores, multiprocessors or compute units.
        lanes: Threads that run in step: a warp or wavefront; 1 on a CPU.
        lane_dims: Dimensions of a value that may lie across lanes: 1 for vector registers, 2 for tiles.
        vector_bytes: Of the widest register (CPU) or load of a thread (GPU).
        threads: Threads that one program may have; 1 on a CPU.
        register_bytes: Registers of a processor.
        shared_bytes: Scratchpad of a processor; 0 without one.
        stack_bytes: What a row may keep on a thread's stack; 0 without one.
        l1_bytes: First-level data cache of a processor.
        l2_bytes: Last cache level that all processors share.
        gb_per_s: Peak bandwidth of its memory, in 1e9 bytes per second.
        gflop_per_s: Peak of plain float32 arithmetic, in 1e9 additions per second.
        matrix_gflop_per_s: Peak of its matrix units on half types, in 1e9 operations per second; 0 without any.
        launch_us: Microseconds between the starts of two kernels that do nothing.
        l2_gb_per_s: Bandwidth of its last cache level, in 1e9 bytes per second; 0 where it isn't known.
        link_us: Microseconds of one round of a collective between processes on such machines.
        link_gb_per_s: What one of these processes sends, in 1e9 bytes per second.

    Raises:
        InvalidArgumentError: `kind` is another one: kernels are scheduled by the rules of one of the two.
    """

    kind: str
    processors: int
    lanes: int = 1
    lane_dims: int = 1
    vector_bytes: int = 16
    threads: int = 1
    register_bytes: int = 2 * KIB
    shared_bytes: int = 0
    stack_bytes: int = 64 * KIB
    l1_bytes: int = 32 * KIB
    l2_bytes: int = 8 * MIB
    gb_per_s: float = 20.0
    gflop_per_s: float = 50.0
    matrix_gflop_per_s: float = 0.0
    launch_us: float = 1.0
    l2_gb_per_s: float = 0.0
    link_us: float = 100.0
    link_gb_per_s: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in ("cpu", "gpu"):
            from intarsia_ir.errors import InvalidArgumentError  # errors need the records that need this file

            raise InvalidArgumentError(
                f'a machine is of kind "cpu" or "gpu", not {self.kind!r}',
                code="ir.machine_kind",
                hints=('"gpu" is a grid of programs of many lanes, "cpu" a loop a thread',),
            )

    def scaled(self, processors: int) -> Machine:
        """Return the machine with another number of such processors; peaks grow with it."""
        ratio = processors / self.processors
        return replace(
            self,
            processors=processors,
            gb_per_s=self.gb_per_s * ratio,
            l2_gb_per_s=self.l2_gb_per_s * ratio,
            gflop_per_s=self.gflop_per_s * ratio,
            matrix_gflop_per_s=self.matrix_gflop_per_s * ratio,
        )


def _cpu(vector_bytes: int, register_bytes: int, gflop_per_s: float) -> Machine:
    """A CPU of two cores, as far as its instruction set tells."""
    return Machine(
        "cpu",
        2,
        vector_bytes=vector_bytes,
        register_bytes=register_bytes,
        gb_per_s=20.0,
        gflop_per_s=gflop_per_s,
        l2_gb_per_s=160.0,
    )


def _gpu(processors: int, lanes: int, register_kib: int, shared_kib: int, l1_kib: int, l2_mib: int) -> Machine:
    return Machine(
        "gpu", processors, lanes, 2, 16, 1024, register_kib * KIB, shared_kib * KIB, 0, l1_kib * KIB, l2_mib * MIB,
        launch_us=3.0, link_us=5.0,
    )  # fmt: skip


# Vendors' data sheets; a CPU's rates are a core's share of memory and its weighted operations, as kernels reach them.
MACHINES: Mapping[tuple[str, str], Machine] = MappingProxyType(
    {
        ("cpu", "scalar"): _cpu(16, 256, 12.5),
        ("cpu", "neon"): _cpu(16, 512, 12.5),
        ("cpu", "avx2"): _cpu(32, 512, 25.0),
        ("cpu", "avx512"): _cpu(64, 2 * KIB, 50.0),
        # A100 (SXM, 80 GB), H200 and MI300X
        ("cuda", "sm_80"): replace(
            _gpu(108, 32, 256, 164, 192, 40),
            gb_per_s=2039.0,
            gflop_per_s=9750.0,
            matrix_gflop_per_s=312e3,
            link_gb_per_s=300.0,
        ),
        ("cuda", "sm_90"): replace(
            _gpu(132, 32, 256, 228, 256, 50),
            gb_per_s=4800.0,
            gflop_per_s=33500.0,
            matrix_gflop_per_s=989e3,
            link_gb_per_s=450.0,
        ),
        ("cuda", "gfx942"): replace(
            _gpu(304, 64, 512, 64, 32, 256),
            gb_per_s=5300.0,
            gflop_per_s=81700.0,
            matrix_gflop_per_s=1307e3,
            link_gb_per_s=448.0,
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Target:
    """What kernels are compiled for.

    Args:
        device: Kind of device as torch calls it: `"cpu"`, `"cuda"`; another one with `measured` only.
        isa: `"avx512"`, `"avx2"`, `"neon"`, `"scalar"`; for a GPU its architecture: `"sm_90"`, `"gfx942"`.
        compiler: Command of the C++ compiler; "" when there is none.
        threads: Number of OpenMP threads.
        measured: The machine's numbers, as asked from it or measured; None: those of the table.

    Raises:
        InvalidArgumentError: `target.unknown`: neither the table nor `measured` says what the machine is.

    Example:
        >>> Target("cuda", "sm_80").machine.processors, Target("cuda", "sm_90").machine.processors
        (108, 132)
        >>> Target("npu")
        Traceback (most recent call last):
        ...
        intarsia_ir.errors.InvalidArgumentError: no machine is known as 'scalar' of device 'npu'...
    """

    device: str = "cpu"
    isa: str = "scalar"
    compiler: str = "g++"
    threads: int = 1
    measured: Machine | None = None

    def __post_init__(self) -> None:
        if self.measured is not None or nearest_machine(self.device, self.isa) is not None:
            return
        from intarsia_ir.errors import InvalidArgumentError  # errors need the records that need this file

        names = ", ".join(f"{device}/{isa}" for device, isa in MACHINES)
        raise InvalidArgumentError(
            f"no machine is known as {self.isa!r} of device {self.device!r}",
            code="target.unknown",
            hints=(f"name one of {names}", "or describe it: Target(device, isa, measured=Machine(...))"),
        )

    @property
    def machine(self) -> Machine:
        """The numbers that decisions read."""
        machine = self.measured or nearest_machine(self.device, self.isa)
        assert machine is not None  # checked when it was made
        return machine

    @property
    def is_gpu(self) -> bool:
        """Whether a kernel is a grid of programs."""
        return self.machine.kind == "gpu"


def nearest_machine(device: str, isa: str) -> Machine | None:
    """Return the table's row of an architecture, or of the one before it of the same maker; None: it has none.

    Example:
        >>> nearest_machine("cuda", "sm_89") is nearest_machine("cuda", "sm_80")
        True
    """
    exact = MACHINES.get((device, isa))
    maker, number = _maker(isa), _number(isa)
    if exact is not None or device != "cuda" or not maker:
        return exact
    machines = {_number(name): row for (kind, name), row in MACHINES.items() if kind == device and _is(name, maker)}
    return machines[max((n for n in machines if n <= number), default=min(machines))]


def _maker(isa: str) -> str:
    return next((prefix for prefix in ("sm_", "gfx") if _is(isa, prefix)), "")


def _is(isa: str, maker: str) -> bool:
    return isa.startswith(maker) and _number(isa) >= 0


def _number(isa: str) -> int:
    """The number in an architecture's name; AMD's has a hexadecimal digit in it. -1: there is none."""
    digits = isa.removeprefix("sm_").removeprefix("gfx")
    try:
        return int(digits.rstrip("af"), 10) if isa.startswith("sm_") else int(digits, 16)
    except ValueError:
        return -1
