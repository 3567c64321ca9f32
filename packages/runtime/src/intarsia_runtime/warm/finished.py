"""A finished plan, and its text: one line of JSON about it, then the graphs that are built and linked.

// plan 1
{"draws_random": false, "facts": {...}, "kernels": [...], "n_nests": 12, "plans": {...}, "tensors": {...}}
// partition 1
// level: Buildable 2
...
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

import torch

from intarsia_ir.dtypes import dtype_from_name
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.records import Origin, SizeFact, SizeFacts
from intarsia_ir.values import Partition
from intarsia_loops import Buildable, Emitted
from intarsia_loops.called import called
from intarsia_loops.kernels import KernelSummary
from intarsia_loops.level_text import constants_of, parse_value, print_value
from intarsia_runtime.build import build
from intarsia_runtime.cache import Cache
from intarsia_runtime.link import link
from intarsia_runtime.linked import Linked
from intarsia_runtime.profiling import graph_name

__all__ = ["Finished", "buildable", "finish", "parse_finished", "print_finished", "text_and_tensors"]

HEADER = "// plan 2\n"
MOST_BYTES = 1 << 20  # of the tensors that a plan may hold


@dataclass(frozen=True, slots=True)
class Finished:
    """What the passes made of a captured graph.

    Args:
        program: What is built and linked: of the graph and, in training, of its backward graphs.
        facts: What all stages relied on about sizes.
        draws_random: Whether the graph advances a random generator.
        n_nests: Loop nests before fusion, library calls apart.
        kernels: Generated kernels that are launched, in order.
        plans: Name of a stage -> what it decided, as JSON.
    """

    program: Partition[Buildable]
    facts: SizeFacts = field(default_factory=SizeFacts)
    draws_random: bool = False
    n_nests: int = 0
    kernels: tuple[KernelSummary, ...] = ()
    plans: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def buildable(emitted: Emitted) -> Buildable:
    """Return an emitted value without the launches and nests that its source was printed from."""
    name = graph_name(emitted.graph_module, emitted.contract.signature)
    addressed = {buffer for launch in emitted.source.launches for buffer in launch.buffers}
    return Buildable(called(emitted.launches.program, addressed), emitted.contract, emitted.source, name)


def finish(half: Buildable, cache: Cache) -> Linked:
    """Return a graph, built and linked; errors are those of `build` and `link`.

    Args:
        half: One graph of a program.
        cache: Where machine code is kept.
    """
    made_for = half.contract
    library = build(half.source, made_for.target, cache=cache)
    run = link(half.program, half.source, library, device=made_for.device, name=half.name)
    return Linked(run, made_for.signature, made_for.guards, made_for.device)


def print_finished(finished: Finished) -> str:
    """Return the text of a plan.

    Raises:
        UnsupportedError: Something in it has no text, or its tensors are larger than `MOST_BYTES`.
    """
    constants = constants_of(finished.program)
    if sum(getattr(value, "nbytes", 0) for value in constants.values()) > MOST_BYTES:
        raise UnsupportedError("constants of the graph are too large", code="ir.text")
    return _text(finished, {name: _tensor_data(name, _on_host(value)) for name, value in constants.items()})


def text_and_tensors(finished: Finished) -> tuple[str, dict[str, torch.Tensor]]:
    """Return the text of a plan without the elements of its tensors, and these tensors.

    Raises:
        UnsupportedError: Something in it has no text.
    """
    constants = constants_of(finished.program)
    for name, value in constants.items():
        _check_plain(name, value)
    return _text(finished, {}), constants


def _text(finished: Finished, tensors: Mapping[str, Any]) -> str:
    head = {
        "draws_random": finished.draws_random,
        "facts": asdict(finished.facts),
        "kernels": [asdict(kernel) for kernel in finished.kernels],
        "n_nests": finished.n_nests,
        "plans": finished.plans,
        "tensors": tensors,
    }
    return f"{HEADER}{json.dumps(head)}\n{print_value(finished.program)}"


def parse_finished(text: str, tensors: Mapping[str, torch.Tensor] = MappingProxyType({})) -> Finished:
    """Return the plan that `print_finished` wrote as `text`, or `text_and_tensors` with `tensors` beside it.

    Raises:
        ValueError, KeyError, TypeError, IntarsiaError: It isn't one.
    """
    if not text.startswith(HEADER):
        raise ValueError(f"it doesn't start with {HEADER!r}")
    line, _, rest = text.removeprefix(HEADER).partition("\n")
    head = json.loads(line)
    constants = {**tensors, **{name: _tensor(*data) for name, data in head["tensors"].items()}}
    program = parse_value(rest, constants=constants)
    if not isinstance(program, Partition) or not all(isinstance(half, Buildable) for half in program.graphs):
        raise ValueError("it isn't a partition of buildable graphs")
    return Finished(
        program,
        _facts(head["facts"]),
        head["draws_random"],
        head["n_nests"],
        tuple(_kernel(data) for data in head["kernels"]),
        {stage: tuple(plans) for stage, plans in head["plans"].items()},
    )


def _kernel(data: Mapping[str, Any]) -> KernelSummary:
    origins = tuple(Origin(**origin) for origin in data["origins"])
    return KernelSummary(**{**data, "writes": tuple(data["writes"]), "origins": origins})


def _facts(data: Mapping[str, Any]) -> SizeFacts:
    facts = tuple(
        SizeFact(fact["relation"], None if fact["origin"] is None else Origin(**fact["origin"]))
        for fact in data["facts"]
    )
    ranges = {name: (low, high) for name, (low, high) in data["ranges"].items()}
    return SizeFacts(data["symbols"], ranges, facts, data["hints"])


def _tensor_data(name: str, value: Any) -> tuple[str, tuple[int, ...], tuple[int, ...], str]:
    """Return element type, shape, strides, and the elements in row-major order, in base 64.
    Raises:
        UnsupportedError: It is no plain tensor.
    """
    _check_plain(name, value)
    elements = value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return str(value.dtype), tuple(value.shape), tuple(value.stride()), base64.b64encode(elements).decode()


def _on_host(value: Any) -> Any:
    """Return a constant on the CPU: what is on a GPU is put there again when its graph is linked."""
    return value.cpu() if type(value) is torch.Tensor and value.is_cuda else value


def _check_plain(name: str, value: Any) -> None:
    plain = type(value) is torch.Tensor and value.layout is torch.strided and value.device.type == "cpu"
    if not plain or value.is_conj() or value.is_neg() or value.requires_grad or 0 in value.stride():
        raise UnsupportedError(f"the constant {name!r} ({type(value).__name__}) has no text", code="ir.text")


def _tensor(dtype: str, shape: list[int], strides: list[int], elements: str) -> torch.Tensor:
    tensor = torch.empty_strided(shape, strides, dtype=dtype_from_name(dtype.removeprefix("torch.")), device="cpu")
    if tensor.numel():
        tensor.copy_(torch.frombuffer(bytearray(base64.b64decode(elements)), dtype=tensor.dtype).reshape(shape))
    return tensor
