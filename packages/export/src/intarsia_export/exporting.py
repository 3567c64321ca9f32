"""A call of a function -> an artefact: one graph for each case of its sizes, captured whole and compiled.

What captures, compiles and links is given: this package has neither a tracer nor passes, and a process that only loads
artefacts needs neither.
"""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.utils._pytree as pytree

from intarsia_export.calls import Capturing, Function, Parts, function_of, parameters_of, variant_parts
from intarsia_export.contents import Artefact, MadeOn, Size, Variant
from intarsia_export.dims import Case, Places, cases_of, example_of, hints_of, places_of
from intarsia_export.host_plan import host_plan
from intarsia_export.loading import guards_of
from intarsia_export.operators import operator_schemas
from intarsia_export.weights import Weights
from intarsia_ir import codes
from intarsia_ir.errors import IntarsiaError, InternalError, UnsupportedError
from intarsia_ir.pipeline import Pipeline
from intarsia_ir.values import Captured, Recorded
from intarsia_runtime import Cache, machine_code
from intarsia_runtime.report import GraphReport
from intarsia_runtime.target import cpu_features
from intarsia_runtime.warm import Finished
from intarsia_shapes import facts_behind, join_facts

__all__ = ["Backend", "export_call", "finished_variant", "made_on", "said_of", "sizes_of", "with_sizes"]


@dataclass(frozen=True, slots=True)
class Backend:
    """What turns a call, or a program of another front end, into a finished graph.

    Args:
        capturing: Captures a call, and links what was captured.
        pipeline: Stages from a captured or recorded graph to an emitted one.
        record: `(exported program, values of the user's inputs) -> recorded graph`.
        lifted: `exported program -> its parameters, buffers and constants`, in the order of its inputs.
        cache: Where machine code is kept while it is built.
        version: Of the packages.
    """

    capturing: Capturing
    pipeline: Pipeline
    record: Callable[[Any, Sequence[Any]], Recorded]
    lifted: Callable[[Any], Sequence[torch.Tensor]]
    cache: Cache
    version: str

    def finish(self, value: Captured | Recorded, inputs: Sequence[Any]) -> Finished:
        """Return what the stages from the level of `value` on make of it; `inputs` are its example inputs."""
        report, facts, started = GraphReport(), value.facts, False
        for stage in self.pipeline.stages:
            started = started or stage.takes is type(value)
            if started:
                value, plans = stage(value)
                report.add_stage(value, stage.name, plans)
        return report.finished(join_facts(facts, facts_behind(inputs, close=True)))


def export_call(
    fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any, backend: Backend
) -> Artefact:
    """Return the artefact of `fn`, for calls like `fn(*args, **kwargs)`, computed without gradients.

    Args:
        fn: A function, a bound method or a module, which is exported as it is: its state and settings, training mode
            among them, are part of the artefact.
        args: Positional arguments of an example.
        kwargs: Keyword arguments of it.
        dynamic_shapes: Which sizes vary; see `dims.places_of`.
        backend: See there.

    Raises:
        InvalidArgumentError: The arguments, or `dynamic_shapes`, don't fit.
        UnsupportedError: The call isn't one graph, changes what isn't a tensor, or takes or returns what has no text;
            the message has the user's line.
    """
    function = function_of(fn)
    arguments = function.bind(args, kwargs)
    places = places_of(function.nested_shapes(dynamic_shapes, arguments), arguments)
    weights = Weights(fn if isinstance(fn, torch.nn.Module) else None)
    variants = []
    with torch.inference_mode(False), torch.no_grad():
        for case in cases_of(places):
            with said_of(case):
                variants.append(_variant(function, arguments, places, case, weights, backend))
    weights.check([v.finished.program.forward.contract.signature for v in variants], [v.inputs for v in variants])
    given = parameters_of(function, args, kwargs)
    provenance = made_on(variants, backend.version)
    return Artefact(function.name, given, tuple(variants), weights.named, provenance, sizes_of(places))


def sizes_of(places: Places) -> tuple[Size, ...]:
    """Return the sizes that vary, as an artefact holds them."""
    return tuple(
        Size(path, place, dim.name, dim.min, dim.max)
        for path, _, dims in places.values()
        for place, dim in dims.items()
    )


@contextlib.contextmanager
def said_of(case: Case) -> Iterator[None]:
    """Have errors say for which sizes they arose, where these are compiled apart."""
    try:
        yield
    except IntarsiaError as error:
        said = ", ".join(f"{dim.name} = {size}" for dim, size in case.items() if size is not None)
        if error.code == codes.MARK_VIOLATED:
            error.explanation = error.explanation.replace("was marked dynamic", "varies")
            error.hints = (
                "give sizes that must be equal one Dim, narrow its bounds, or leave it out of dynamic_shapes",
            )
        if said:
            error.explanation = f"for {said}: {error.explanation}"
        raise


def _variant(
    function: Function, arguments: Mapping[str, Any], places: Places, case: Case, weights: Weights, backend: Backend
) -> Variant:
    examples = with_sizes(arguments, places, case)
    parts = variant_parts(function, examples, weights, backend.capturing)
    inputs = parts.inputs_at_capture
    value = Captured(parts.graph_module, inputs, parts.signature, facts_behind(inputs))
    finished = backend.finish(value, inputs)
    return finished_variant(finished, parts, backend.cache, examples)


def with_sizes(arguments: Mapping[str, Any], places: Places, case: Case) -> Mapping[str, Any]:
    """Return the arguments with tensors of the sizes of a case; what doesn't vary is the very tensor."""
    hints = hints_of(case, places)
    examples = {key: example_of(tensor, dims, case, hints) for key, (_, tensor, dims) in places.items()}
    return {name: pytree.tree_map(lambda x: examples.get(id(x), x), value) for name, value in arguments.items()}


def finished_variant(finished: Finished, parts: Parts, cache: Cache, examples: Mapping[str, Any]) -> Variant:
    """Return a variant with its machine code, after a look at whether it takes its own example."""
    half = finished.program.forward
    if finished.program.backwards or half.contract.signature.exit_grad_mode is not None:
        raise UnsupportedError(
            "the program computes with gradients on, and an artefact computes none",
            code="export.gradient",
            hints=("leave torch.enable_grad out of what is exported",),
        )
    if half.contract.device.type != "cpu":
        raise UnsupportedError(
            f"the program runs on {half.contract.device}, and artefacts are for the CPU so far", code="export.device"
        )
    guards, types = parts.relied_on(half.contract.guards)
    variant = Variant(
        finished,
        machine_code(half.source, half.contract.target, cache=cache),
        guards,
        types,
        parts.inputs,
        parts.result,
        parts.checks,
    )
    if failure := guards_of(variant).explain_failure(kwargs=examples):
        raise InternalError(f"an artefact refuses its own example: {failure}", code="export.example")
    plan, why = host_plan(variant, examples)
    return replace(variant, plan=plan, no_plan=why)


def made_on(variants: Sequence[Variant], version: str) -> MadeOn:
    """Return where variants were made, and what they call."""
    programs = [v.finished.program.forward for v in variants]
    return MadeOn(
        platform.machine(),
        tuple(sorted(cpu_features())),
        programs[0].contract.target.isa,
        torch.__version__,
        version,
        operator_schemas([half.program for half in programs]),
    )
