"""A file -> a function: versions and target checked, machine code loaded or built again, nothing captured."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from intarsia_export.contents import Artefact, MadeOn, Variant, read, value_of
from intarsia_export.operators import check_operators
from intarsia_export.trees import Node, leaves_of, resolved
from intarsia_guards import GuardSet, build_guards
from intarsia_guards.frame import Frame, fetch
from intarsia_guards.relations import evaluate
from intarsia_ir.errors import LOOKUP_OUT_OF_RANGE, InternalError, InvalidArgumentError, RuntimeFault
from intarsia_ir.records import Origin, SizeFacts, Source
from intarsia_ir.source_text import parse_source
from intarsia_ir.values import Partition
from intarsia_ir.where import warn_user
from intarsia_runtime import Cache, Library, Linked, assembled, build, detect_target, link
from intarsia_runtime.cache import cache_folder_of_user
from intarsia_runtime.target import cpu_features

__all__ = ["Program", "check_made_on", "guards_of", "load", "program_of"]

_ISA = ("scalar", "avx2", "avx512")  # each has what those before it have


def load(
    path: str | os.PathLike[str], *, plain: bool = False, cache_dir: str | os.PathLike[str] | None = None
) -> Program:
    """Return the program of an artefact, ready to be called.

    Load only files that you trust as you would a library: machine code in them is run. The weights are mapped from
    the file, and pages of them are read when they are used.

    Args:
        path: What `Artefact.save` wrote.
        plain: Results in containers of classes that aren't loaded are given as dictionaries and tuples.
        cache_dir: Where machine code is kept that has to be built here; None: the user's cache.

    Raises:
        InvalidArgumentError: `export.file`: it is no artefact, or damaged; `export.version`, `export.operator`: it is
            for another version of torch; `export.target`: it is for another processor; `export.class`: see `plain`.
        UnsupportedError: `runtime.no_compiler`: its machine code doesn't run here, and can't be built.
        OSError: The file can't be read.
    """
    return program_of(read(path, check_made_on), plain=plain, cache_dir=cache_dir, name=os.fspath(path))


def check_made_on(made_on: MadeOn) -> None:
    """Check that programs of another process run in this one, as far as versions and processor go.

    Raises:
        InvalidArgumentError: `export.version`, `export.target`, `export.operator`: they don't.
    """
    ours, theirs = (version.partition("+")[0].split(".")[:2] for version in (torch.__version__, made_on.torch))
    if ours != theirs:
        raise InvalidArgumentError(
            f"it was exported with torch {made_on.torch}, and this is torch {torch.__version__}",
            code="export.version",
            hints=("export it again with this torch, or load it with that one",),
        )
    here = detect_target(compiler="").isa
    same = made_on.machine == platform.machine()
    if not same or (made_on.isa != here and (made_on.isa not in _ISA or _ISA.index(made_on.isa) > _rank(here))):
        raise InvalidArgumentError(
            f"it was exported for {made_on.machine} with {made_on.isa}, and this is {platform.machine()} with {here}",
            code="export.target",
            hints=("export it on a machine like this one",),
        )
    check_operators(made_on.operators)


def _rank(isa: str) -> int:
    return _ISA.index(isa) if isa in _ISA else -1


def program_of(
    artefact: Artefact,
    *,
    plain: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    name: str = "",
) -> Program:
    """Return the function of an artefact; arguments and errors as for `load`, `name` is for messages."""
    fits = set(artefact.made_on.features) <= cpu_features()
    calls = []
    for variant in artefact.variants:
        half = variant.finished.program.forward
        library = _library(variant, fits, cache_dir, name or artefact.name)
        run = link(half.program, half.source, library, device=half.contract.device, name=half.name)
        linked = Linked(run, half.contract.signature, half.contract.guards, half.contract.device)
        calls.append(_Call(variant, assembled(Partition(linked)), artefact.weights, plain))
    return Program(artefact, tuple(calls))


def _library(variant: Variant, fits: bool, cache_dir: str | os.PathLike[str] | None, name: str) -> Library:
    """Return machine code: that of the artefact where it runs here, else made of its sources."""
    why = "for a processor with features that this one lacks"
    if fits:
        try:
            return Library(variant.image, Path(tempfile.gettempdir()), name)
        except InternalError as error:
            why = f"against other libraries ({error.explanation})"
    half = variant.finished.program.forward
    warn_user(f"the machine code of {name} was built {why}: it is built again, from its sources", RuntimeWarning)
    folder = cache_dir or os.environ.get("INTARSIA_CACHE_DIR") or cache_folder_of_user() / "intarsia"
    return build(half.source, detect_target(threads=half.contract.target.threads), cache=Cache(folder))


def guards_of(variant: Variant) -> GuardSet:
    """Return what must hold of the arguments of a call, as a predicate over parameter names and values."""
    return build_guards(variant.guards, variant.finished.facts)


class Program:
    """A loaded program: called as what was exported, without gradients.

    Attributes:
        artefact: What it was made of; `artefact.weights` are its own tensors, buffers that it writes among them.
    """

    def __init__(self, artefact: Artefact, calls: Sequence[_Call]) -> None:
        self.artefact = artefact
        self._calls = calls
        self.__signature__ = artefact.signature()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it.

        Raises:
            TypeError: The arguments don't fit the parameters.
            InvalidArgumentError: `export.call`: the program is for other arguments; the message says which.
        """
        bound = self.__signature__.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = bound.arguments
        for call in self._calls:
            if call.takes(arguments):
                return call.run(arguments)
        why, origin = _wrong_size(self.artefact, arguments), None
        if not why:
            why, origin = self._calls[0].refusal(arguments)
        raise InvalidArgumentError(
            f"{self.artefact.name} was exported for other arguments: {why}",
            code="export.call",
            where=(origin,) if origin is not None else (),
            hints=("call it as it was exported, or export it for these too: dynamic_shapes says which sizes vary",),
        )

    def __repr__(self) -> str:
        return f"Program({self.artefact.name}{self.__signature__})"


def _wrong_size(artefact: Artefact, arguments: Mapping[str, Any]) -> str:
    """Return which size lies outside of its bounds, or differs from one that it must equal; "" for none."""
    seen: dict[str, tuple[int, str]] = {}
    for size in artefact.sizes:
        try:
            tensor = fetch(parse_source(size.place), Frame(arguments))
            value, place = int(tensor.size(size.dim)), f"dimension {size.dim} of {size.place}"
        except Exception:  # no tensor is there, or one of another rank: what was relied on says so
            return ""
        if value < size.low or (size.high is not None and value > size.high):
            bounds = f"[{size.low}, {'inf' if size.high is None else size.high}]"
            return f"{place} is {value}, outside of {bounds}, the bounds of {size.name!r}"
        first, where = seen.setdefault(size.name, (value, place))
        if first != value:
            return f"{place} is {value} and {where} is {first}, and both are {size.name!r}"
    return ""


class _Call:
    """One variant, linked."""

    def __init__(
        self, variant: Variant, run: Callable[..., list[Any]], weights: Mapping[str, torch.Tensor], plain: bool
    ) -> None:
        self._run, self._weights, self._checks = run, weights, variant.checks
        self._facts = variant.finished.facts
        self._guards = guards_of(variant)
        self._types = variant.types
        self._inputs = [weights[p] if isinstance(p, str) else p for p in variant.inputs]
        self._build = resolved(variant.result, plain=plain)
        self._leaves = {id(leaf): _getter(leaf, weights) for leaf in leaves_of(variant.result)}

    def takes(self, arguments: Mapping[str, Any]) -> bool:
        """Tell whether it is for these arguments."""
        return self._wrong_type(arguments) is None and self._guards.check(kwargs=arguments)

    def _wrong_type(self, arguments: Mapping[str, Any]) -> str | None:
        frame = Frame(arguments)
        for source, name in self._types:
            try:
                value = fetch(source, frame)
            except Exception:  # nothing is there, or code of the user's would be run to look
                return f"{source} is missing, and it was a {_short(name)}"
            if f"{type(value).__module__}.{type(value).__qualname__}" != name:
                return f"{source} is a {type(value).__qualname__}, and it was a {_short(name)}"
            if isinstance(value, torch.Tensor) and (value.is_conj() or value.is_neg()):
                return f"{source} is lazily conjugated or negated"
        return None

    def refusal(self, arguments: Mapping[str, Any]) -> tuple[str, Origin | None]:
        """Return what is wrong with arguments that it doesn't take, and the line that asks for others."""
        if why := self._wrong_type(arguments):
            return why, None
        failure = self._guards.first_failure(kwargs=arguments)
        if failure is None:
            return "they are for none of its variants", None
        about = failure.source or failure.kind.value.replace("_", " ")
        return f"{about} was {failure.expected}, now it is {failure.actual}", failure.origin

    def run(self, arguments: Mapping[str, Any]) -> Any:
        """Return what the program returns for arguments that it takes."""
        frame = Frame(arguments)
        inputs = [fetch(place, frame) if isinstance(place, Source) else place for place in self._inputs]
        try:
            results = self._run(*inputs)
        except RuntimeFault as fault:
            raise _as_eager_raises(fault) from None
        if not all(map(bool, results[: self._checks])):
            raise InvalidArgumentError(
                "the program goes another way for these values than for those it was exported with", code="export.check"
            )
        sizes = _Sizes(self._facts, frame)
        return self._build(lambda leaf: self._leaves[id(leaf)](results, frame, sizes))


class _Sizes:
    """The sizes of one call, read when they are asked for."""

    def __init__(self, facts: SizeFacts, frame: Frame) -> None:
        self._facts, self._frame, self._values = facts, frame, dict[str, Any]()

    def __call__(self, text: str) -> Any:
        if not self._values:
            for name, place in self._facts.symbols.items():
                self._values[name] = evaluate(place, lambda source: fetch(source, self._frame))
        return evaluate(text, lambda source: None, self._values)


def _getter(leaf: Node, weights: Mapping[str, torch.Tensor]) -> Callable[[Sequence[Any], Frame, _Sizes], Any]:
    """Return how a leaf is found among results, arguments and sizes of a call."""
    ((kind, what),) = leaf.items()
    match kind:
        case "result":
            return lambda results, frame, sizes: results[what]
        case "argument":
            source = parse_source(what)
            return lambda results, frame, sizes: fetch(source, frame)
        case "weight":
            return lambda results, frame, sizes: weights[what]
        case "size":
            return lambda results, frame, sizes: sizes(what)
    value = value_of(what)
    return lambda results, frame, sizes: value


def _short(name: str) -> str:
    return name.removeprefix("builtins.")


def _as_eager_raises(fault: RuntimeFault) -> BaseException:
    """Return what eager raises instead: a kernel's check of a lookup knows no class of error."""
    cause = fault.__cause__
    if type(cause) is RuntimeError and str(cause) == LOOKUP_OUT_OF_RANGE:
        return IndexError(LOOKUP_OUT_OF_RANGE)
    return cause or fault
