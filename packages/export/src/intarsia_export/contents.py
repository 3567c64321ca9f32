"""What an artefact holds: frozen records, and their text.

Artefact    a program by its name and parameters; its variants, weights, and the machine that it was built on
Variant     one graph, finished: for all sizes of a range, or for a size that is compiled apart
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

import intarsia_export.strides as strides
from intarsia_export.trees import Node
from intarsia_ir.errors import InvalidArgumentError, UnsupportedError
from intarsia_ir.records import GuardRecord, Source
from intarsia_ir.text import Opaque, record_reader, record_text
from intarsia_runtime.warm import Finished, parse_finished, text_and_tensors

__all__ = ["FORMAT", "Artefact", "MadeOn", "Parameter", "Size", "Variant", "literal_text", "read", "value_of"]

FORMAT = 3
_OURS = "intarsia/"  # prefix of the names of tensors that aren't weights


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of an exported function.

    Args:
        name: Its name.
        kind: As `inspect.Parameter.kind` is called.
        default: Text of its default; None: it has none, or one without text.
        optional: The exported call left it out.
    """

    name: str
    kind: str
    default: str | None = None
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Size:
    """A size that varies.

    Args:
        place: Text of where the tensor is among the arguments.
        dim: Dimension, counted from the front.
        name: What it is called; sizes of one name are equal.
        low: Least size, inclusive.
        high: Greatest size, inclusive; None: there is none.
    """

    place: str
    dim: int
    name: str
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class MadeOn:
    """Where an artefact was made.

    Args:
        machine: As the system calls the processor's architecture.
        features: What the processor can do, sorted.
        isa: The instructions that the sources are written for.
        torch: Version of torch.
        intarsia: Version of the packages.
        operators: Schemas of the operators that are called, sorted: an operator that has another one isn't the same.
    """

    machine: str
    features: tuple[str, ...]
    isa: str
    torch: str
    intarsia: str
    operators: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Variant:
    """One graph of a program, and for which calls it is.

    Args:
        finished: What the passes made of it.
        image: Its machine code, a shared object.
        guards: What must hold of the arguments.
        types: Where an object is -> the name of its class.
        inputs: For each input of the graph, the name of a weight, or where it is among the arguments.
        result: What is returned, see `trees`.
        checks: How many of the first results of the graph must be true.
        plan: What runs the graph without Python, see `host_plan`; "": nothing does, and why is in `no_plan`.
        no_plan: Why there is no plan.
    """

    finished: Finished
    image: bytes
    guards: tuple[GuardRecord, ...]
    types: tuple[tuple[Source, str], ...]
    inputs: tuple[str | Source, ...]
    result: Node
    checks: int = 0
    plan: str = ""
    no_plan: str = ""


@dataclass(frozen=True, slots=True)
class Artefact:
    """An exported program: everything that runs it.

    Args:
        name: What it was exported from.
        parameters: Of the function.
        variants: The one with the most freedom first.
        weights: Name -> tensor: parameters, buffers and other tensors of the program's own.
        made_on: Where it was made.
        sizes: Those that vary.
    """

    name: str
    parameters: tuple[Parameter, ...]
    variants: tuple[Variant, ...]
    weights: Mapping[str, torch.Tensor]
    made_on: MadeOn
    sizes: tuple[Size, ...] = ()

    def signature(self) -> inspect.Signature:
        """Return what a call takes; a parameter that the exported call left out is `OMITTED` by default."""
        return inspect.Signature([_parameter(p) for p in self.parameters])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as one file in the format of safetensors; an older file stays whole for those who have it open.

        Raises:
            UnsupportedError: `export.weight`: a weight has an element type that the format hasn't.
            OSError: The file can't be written.
        """
        tensors, metadata = _packed(self)
        folder = Path(path).resolve().parent
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".intarsia-")
        os.close(descriptor)
        try:
            try:
                safetensors.torch.save_file(tensors, temporary, metadata=metadata)
            except (KeyError, ValueError) as error:
                raise UnsupportedError(f"the weights can't be written: {error}", code="export.weight") from error
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise


OMITTED = type("Omitted", (), {"__repr__": lambda self: "<as exported>"})()
"""The default of a parameter that the exported call left out, and whose own default has no text."""


def _parameter(given: Parameter) -> inspect.Parameter:
    default = value_of(given.default) if given.default is not None else OMITTED if given.optional else inspect._empty
    return inspect.Parameter(given.name, getattr(inspect._ParameterKind, given.kind), default=default)


def literal_text(value: Any) -> str | None:
    """Return text of a Python value that reads back as it; None: it has none."""
    opaque = Opaque()
    text = record_text(value, opaque)
    return None if opaque.named else text


def value_of(text: str) -> Any:
    """Return the value that `literal_text` or `record_text` wrote."""
    return record_reader(text, 0, {}).value()


# ---- writing ----------------------------------------------------------------------------------------------------


def _packed(artefact: Artefact) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    tensors: dict[str, torch.Tensor] = {}
    layouts: dict[str, Any] = {}
    texts: dict[str, str] = {}
    seen: set[int] = set()
    for name, weight in artefact.weights.items():
        elements, layouts[name] = strides.dense(weight.detach())
        # the format has no two names of one memory
        tensors[name] = elements.clone() if elements.data_ptr() in seen else elements
        seen.add(elements.data_ptr())
    described = []
    for number, variant in enumerate(artefact.variants):
        texts[f"program {number}"], constants = text_and_tensors(variant.finished)
        texts[f"plan {number}"] = variant.plan
        for name, constant in constants.items():
            key = f"{_OURS}{number}/constant/{name}"
            tensors[key], layouts[key] = strides.dense(constant)
        tensors[f"{_OURS}{number}/library"] = torch.frombuffer(bytearray(variant.image), dtype=torch.uint8)
        described.append(_described(variant))
    head = {
        "format": FORMAT,
        "name": artefact.name,
        "parameters": [asdict(p) for p in artefact.parameters],
        "made_on": asdict(artefact.made_on),
        "sizes": [asdict(size) for size in artefact.sizes],
        "layouts": layouts,
        "variants": described,
        "digests": {name: _digest(text.encode()) for name, text in texts.items()},
    }
    return tensors, {"intarsia": json.dumps(head), **texts}


def _described(variant: Variant) -> dict[str, Any]:
    return {
        "guards": [record_text(guard, Opaque()) for guard in variant.guards],
        "types": [[record_text(source, Opaque()), name] for source, name in variant.types],
        "inputs": [place if isinstance(place, str) else [record_text(place, Opaque())] for place in variant.inputs],
        "result": variant.result,
        "checks": variant.checks,
        "no_plan": variant.no_plan,
        "library": _digest(variant.image),
    }


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# ---- reading ----------------------------------------------------------------------------------------------------


def read(path: str | os.PathLike[str], check: Any = None) -> Artefact:
    """Return what is in a file; its weights are mapped, and read when they are needed.

    Args:
        path: The file.
        check: Called with `MadeOn` before texts are read, which another version might not understand.

    Raises:
        InvalidArgumentError: `export.file`: it is no artefact, of another format, or damaged.
        OSError: It can't be read.
    """
    with open(path, "rb"):  # an error that names the file
        pass
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if "intarsia" not in metadata:
                raise _unreadable(path, "it was not written by intarsia.export")
            head = json.loads(metadata["intarsia"])
            if head["format"] != FORMAT:
                raise _unreadable(path, f"it has format {head['format']}, and this is a reader of format {FORMAT}")
            made_on = _made_on(head["made_on"])
            if check is not None:
                check(made_on)
            for name, digest in head["digests"].items():
                if _digest(metadata[name].encode()) != digest:
                    raise _unreadable(path, f"{name} isn't what was written")
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  (it is no mapping)
    except (safetensors.SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise _unreadable(path, f"it can't be read: {error}") from error
    tensors = {
        key: strides.strided(value, head["layouts"][key]) if key in head["layouts"] else value
        for key, value in tensors.items()
    }
    variants = tuple(_variant(path, n, given, metadata, tensors) for n, given in enumerate(head["variants"]))
    parameters = tuple(Parameter(**given) for given in head["parameters"])
    weights = {key: value for key, value in tensors.items() if not key.startswith(_OURS)}
    for wanted in (place for variant in variants for place in variant.inputs if isinstance(place, str)):
        if wanted not in weights:
            raise _unreadable(path, f"it lacks the weight {wanted!r}")
    return Artefact(head["name"], parameters, variants, weights, made_on, tuple(Size(**s) for s in head["sizes"]))


def _made_on(given: Mapping[str, Any]) -> MadeOn:
    return MadeOn(**{**given, "features": tuple(given["features"]), "operators": tuple(given["operators"])})


def _variant(
    path: Any, number: int, given: Mapping[str, Any], texts: Mapping[str, str], tensors: Mapping[str, torch.Tensor]
) -> Variant:
    prefix = f"{_OURS}{number}/constant/"
    constants = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
    image = tensors[f"{_OURS}{number}/library"].numpy().tobytes()
    if _digest(image) != given["library"]:
        raise _unreadable(path, "its machine code isn't what was written")
    return Variant(
        parse_finished(texts[f"program {number}"], constants),
        image,
        tuple(map(value_of, given["guards"])),
        tuple((value_of(source), name) for source, name in given["types"]),
        tuple(place if isinstance(place, str) else value_of(place[0]) for place in given["inputs"]),
        given["result"],
        given["checks"],
        texts[f"plan {number}"],
        given["no_plan"],
    )


def _unreadable(path: Any, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{os.fspath(path)} is no artefact that can be loaded: {why}",
        code="export.file",
        hints=("export the program again",),
    )
