"""Kernels and machine code -> the function that calls them: straight-line Python, written for one program.

The text is meant to be read (`run.source`). For each call it allocates the arena of the memory plan and the results,
passes addresses to native entries, calls ATen for extern items, and drops every tensor after its last use.

    def run(x, w):
        if _profiled(): return _ranged(x, w)
        with _plain_aten(_no_autograd):
            _arena = _empty(4096, dtype=_u8, device=_device)
            _at = _arena.data_ptr()
            _arena_f32 = _arena.view(_f32)
            _view0 = _as_strided(_arena_f32, (64, 16), (16, 1), 0)
            _seg0(x.data_ptr(), _at)
            h = _aten_mm_default(_view0, w)
            if h.stride() != (64, 1): h = _restride(h, (64, 64), (64, 1))
            y = _empty_strided((64, 64), (64, 1), dtype=_f32, device=_device)
            _seg1(h.data_ptr(), y.data_ptr())
            del h
            return (y,)

Invariants:
    - No state survives a call, so any number of threads may run the function at once.
    - Every result is a tensor in storage of its own: it shares memory with no input and with no other result.
    - Extern operators run below autograd and autocast, which the recorder has already taken into account.
"""

from __future__ import annotations

import functools
import linecache
import weakref
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Protocol

import torch
import torch.fx as fx
from torch.profiler import record_function

from intarsia_ir.aten import effects
from intarsia_ir.dtypes import dtype_from_name
from intarsia_ir.higher_order import HigherOrderOp
from intarsia_ir.records import KernelSource, Launch
from intarsia_loops import from_fx
from intarsia_loops.called import Called, KernelCall
from intarsia_loops.index import IndexExpr
from intarsia_loops.program import Extern, Kernel, Program
from intarsia_loops.shown import Shown, makers, shown_by
from intarsia_runtime import _calls
from intarsia_runtime._device import Device
from intarsia_runtime._names import Names
from intarsia_runtime._refs import RefWriter, shape_text, size_text
from intarsia_runtime.cache import Cache
from intarsia_runtime.cuda_unit import segments
from intarsia_runtime.extern import ExternCall
from intarsia_runtime.library import Library
from intarsia_runtime.profiling import RangedLine, is_profiled, kernel_label, ranged
from intarsia_runtime.relied import KeptResult, handed_on
from intarsia_runtime.steps import last_uses, steps_of

__all__ = ["Runner", "link"]


class Runner(Protocol):
    """What `link` returns: a function of the program's inputs, in order, giving its flat results.

    Attributes:
        source: Its Python text.
        owns_results: True: every result has storage of its own.
        symbolic: Whether sizes or strides of inputs may differ between calls.
        uses_host: Whether it reads or makes tensors on the CPU, beside a CUDA device or alone, or learns sizes from
            its results, which no recording of it would have.
        draws: Whether it draws from torch's generator.
        communicates: Whether it exchanges data with other processes.
        label: What profilers are shown.
        kept: Number of a result -> what is called where it isn't as predicted, and the graph itself hands it on only.
        handed_on: Numbers of the inputs that go to library calls alone, as they are.
    """

    source: str
    label: str
    owns_results: bool
    symbolic: bool
    uses_host: bool
    draws: bool
    communicates: bool
    kept: Mapping[int, KeptResult]
    handed_on: frozenset[int]

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run the program once."""


def link(
    kernels_gm: fx.GraphModule | Program | Called,
    source: KernelSource,
    library: Library,
    *,
    device: torch.device | None = None,
    debug: bool = False,
    name: str = "",
) -> Runner:
    """Return the function that runs a program with the machine code of `library`.

    Args:
        kernels_gm: FX(kernels), the `Program` that it stands for, or what `called` leaves of that.
        source: The unit that was emitted for it; its launches say which native call covers which items.
        library: What `build` made of `source`.
        device: Where kernels run and make their results; None is the CPU. A CUDA device needs a unit in Triton, whose
            kernels run on the stream that is current when the function is called. Extern calls take and give tensors
            on the CPU where the program's buffers say so.
        debug: Check every input and extern result against the program's buffers, at every call.
        name: What profilers call the graph.

    Returns:
        A function of tensors (and ints for size symbols) in the order of the program's inputs. Metadata of inputs
        is not checked: guards have done that.

    Raises:
        InvalidArgumentError: `source` doesn't belong to the program.
        InternalError: `library` lacks an entry.
    """
    program = _program(kernels_gm)
    if source.language == "triton":
        library.prepare()
    writer = _Writer(program, source, library, device or torch.device("cpu"), debug)
    parameters, contexts, body = writer.write()
    label = f"intarsia graph {name}".rstrip()
    bound = writer.names.bound
    profiled = _text(parameters, [f"with _range({label!r}):", *contexts], ranged(body))
    bound |= {"_profiled": is_profiled, "_ranged": _when_called(profiled, bound)}
    text = _text(parameters, contexts, body, before=(f"if _profiled(): return _ranged({parameters})",))
    run = _compile_text(text, bound)
    run.label = label
    run.symbolic = writer.refs.is_symbolic()
    run.draws = any(isinstance(item, Extern) and _draws(item) for item in program.items)
    run.communicates = any(isinstance(item, Extern) and effects(item.target).communicates for item in program.items)
    run.kept, run.handed_on = writer.kept_results(), writer.handed_on_inputs()
    run.uses_host = not writer.device.is_cuda or _uses_any(program, writer.on_host) or bool(makers(program))
    return run


def _program(kernels: fx.GraphModule | Program | Called) -> Program | Called:
    return from_fx(kernels) if isinstance(kernels, fx.GraphModule) else kernels


def _text(parameters: str, contexts: Sequence[str], lines: Sequence[str], before: Sequence[str] = ()) -> str:
    """Return the text of a function whose lines run under contexts, those `before` these excepted."""
    indented = [f"    {line}" for line in before]
    indented += ["    " * depth + context for depth, context in enumerate(contexts, 1)]
    indented += ["    " * (len(contexts) + 1) + line for line in lines]
    return "\n".join([f"def run({parameters}):", *indented, ""])


def _when_called(text: str, bound: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the function of a text that is compiled when it is called for the first time, without a cycle to it."""
    namespace = {**bound, "_range": record_function}

    @functools.cache
    def compiled() -> Runner:
        return _compile_text(text, namespace)

    return lambda *inputs: compiled()(*inputs)


def _compile_text(text: str, namespace: dict[str, Any]) -> Runner:
    # A name per text makes tracebacks show the generated lines.
    filename = f"<intarsia wrapper {Cache.key(text)[:16]}>"
    exec(compile(text, filename, "exec"), namespace)
    run: Any = namespace["run"]
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    weakref.finalize(run, linecache.cache.pop, filename, None).atexit = False
    run.source, run.owns_results = text, True
    runner: Runner = run
    return runner


class _Writer:
    """Writes the function for one program. Terms: an *own* buffer is a tensor variable, the others are arena bytes."""

    def __init__(
        self, program: Program | Called, source: KernelSource, library: Library, device: torch.device, debug: bool
    ) -> None:
        self.program, self.library, self.debug = program, library, debug
        self.launches = segments(source) if source.language == "triton" else source.launches
        self.scratch, self.counters = dict(source.scratch), source.counters
        self.device = Device(device)
        self.names = Names()
        self.offsets: Mapping[str, int] = program.placement.offsets if program.placement else {}
        self.refs = RefWriter(program, self.names, self.offsets, [s for launch in self.launches for s in launch.sizes])
        self.lines: list[str] = []
        self.live: set[str] = set()
        self.made_sizes = set(makers(program))  # that no call has given so far
        self.on_host = _on_host(program) if self.device.is_cuda else frozenset()
        self.kept = self._kept()

    def write(self) -> tuple[str, list[str], list[str]]:
        """Return the parameters, the contexts to run under, and the lines."""
        steps = steps_of(self.program, self.launches)
        symbols = self.refs.derived_symbols()
        parameters = [self.names.local(name) for name in self.program.inputs]
        self.lines += [f"{symbol} = {text}" for symbol, text in symbols]
        self._prologue()
        start = len(self.lines)
        last_use = last_uses(self.program, steps)
        for position, step in enumerate(steps):
            if isinstance(step, Extern):
                ending = {name for name in step.reads() if self._is_own(name) and last_use[name] == position}
                self._extern(step, {name for name in step.outs if last_use.get(name, -1) > position}, ending)
            else:
                self._launch(step)
            self._drop(position, last_use)
        self.lines.append(f"return ({''.join(text + ', ' for text in self._results())})")
        self.lines[start:start] = self.refs.arena_views()
        contexts = [self.device.context(self.names)]
        if any(isinstance(step, Extern) for step in steps) or self.refs.used_views:
            self.names.bind("_plain_aten", torch._C._ExcludeDispatchKeyGuard)
            self.names.bind("_no_autograd", _calls.autograd_and_autocast_keys())
            contexts.append("with _plain_aten(_no_autograd):")
        return ", ".join(parameters), list(filter(None, contexts)), self.lines

    def _prologue(self) -> None:
        for name, value in self.program.constants.items():
            tensor = _calls.as_tensor(value, self.program.buffers[name])
            self.names.bind(self.names.local(name), tensor if name in self.on_host else self.device.place(tensor))
        if self.debug:
            self.names.bind("_check", _calls.check_tensor)
            for name in self.program.inputs:
                if name in self.program.buffers:
                    self.lines.append(self._check(name, "input"))
        unmoved = {*self.on_host, *_taken_as_they_are(self.program)}
        tensors = [n for n in self.program.inputs if n in self.program.buffers and n not in unmoved]
        self.lines += self.device.prologue(self.names, [self.names.local(name) for name in tensors])
        placement = self.program.placement
        if placement is not None and placement.offsets:  # buffers without elements have an address as well
            self.names.bind("_empty", torch.empty)
            self.names.bind("_u8", torch.uint8)
            where = self.device.keyword(self.names)
            self.lines.append(f"_arena = _empty({placement.arena_bytes}, dtype=_u8{where})")
            self.lines.append("_at = _arena.data_ptr()")

    def _launch(self, launch: Launch) -> None:
        for name in launch.buffers:
            if name not in self.live and self._is_own(name):
                self._allocate(name)
        arguments = [self._address(name) for name in launch.buffers]
        arguments += [*map(self.names.local, launch.sizes), *self.device.arguments()]
        call = self.names.bind(f"_{launch.entry}", self.library.launcher(launch.entry, len(arguments)))
        covered = self.program.items[slice(*launch.items)]
        label = kernel_label(launch.entry, [o for item in covered for o in getattr(item, "origins", ())])
        self.lines.append(RangedLine(f"{call}({', '.join(arguments)})", label))

    def _is_own(self, name: str) -> bool:
        return name not in self.offsets and name not in self.program.constants and name not in self.program.inputs

    def _allocate(self, name: str) -> None:
        buffer = self.scratch.get(name) or self.program.buffers[name]
        self.live.add(name)
        if self.counters and name == self.counters:
            self.lines.append(self.device.counters(self.names, self.names.local(name), buffer.shape[0].const() or 0))
            return
        self.names.bind("_empty_strided", torch.empty_strided)
        dtype = self.names.bind(f"_{buffer.dtype}", dtype_from_name(buffer.dtype))
        shape, strides = shape_text(buffer.shape), shape_text(buffer.strides)
        where = self.device.keyword(self.names)
        self.lines.append(f"{self.names.local(name)} = _empty_strided({shape}, {strides}, dtype={dtype}{where})")

    def _address(self, name: str) -> str:
        if name in self.offsets:
            return f"_at + {self.offsets[name]}" if self.offsets[name] else "_at"
        if name in self.program.constants:
            return str(self.names.bound[self.names.local(name)].data_ptr())  # kept alive by the namespace
        return f"{self.names.local(name)}.data_ptr()"

    def _extern(self, item: Extern, used: Set[str], ending: Set[str]) -> None:
        sizes = self._sizes_of(item)
        kept = {} if self.debug else {name: self.kept[name] for name in item.outs if name in self.kept}
        for shown in sizes:
            kept.pop(shown.name, None)
        call = ExternCall(item, self.names, self.refs, used, sizes, ending, kept)
        self.lines += call.lines(self.program)
        read = {shown.name for shown in sizes}
        results = [name for name in item.outs if name in self.program.buffers and (name in used or name in read)]
        self.live.update(results)
        if self.debug:
            self.lines += [self._check(name, str(item.target)) for name in results]

    def _kept(self) -> dict[str, KeptResult | None]:
        """Return what is called for each buffer that only library calls get, and for one that is a result once."""
        outputs = [ref.buffer for ref in self.program.outputs if _calls.is_ref(ref)]
        handed = {name for name in handed_on(self.program, self.launches) if outputs.count(name) < 2}
        return {name: KeptResult() if name in outputs else None for name in handed}

    def kept_results(self) -> dict[int, KeptResult]:
        """Return what decides about results whose size only the graph's caller may rely on."""
        outputs = enumerate(self.program.outputs)
        found = {n: self.kept.get(ref.buffer) for n, ref in outputs if _calls.is_ref(ref)}
        return {n: kept for n, kept in found.items() if kept is not None}

    def handed_on_inputs(self) -> frozenset[int]:
        """Return the numbers of inputs whose size nothing relies on."""
        shown = {text.partition(".")[0] for _, text in self.refs.derived_symbols()}
        inputs = enumerate(self.program.inputs)
        unread = {name for name, kept in self.kept.items() if kept is None} - shown
        return frozenset(n for n, name in inputs if name in unread and self.names.local(name) not in shown)

    def _sizes_of(self, item: Extern) -> list[Shown]:
        """Return where the size symbols are read that a call is the first to give."""
        sizes: dict[str, Shown] = {}
        for shown in shown_by(item.outs, self.program.buffers) if self.made_sizes else ():
            if shown.symbol in self.made_sizes:
                sizes.setdefault(shown.symbol, shown)
        self.made_sizes -= sizes.keys()
        return list(sizes.values())

    def _check(self, name: str, what: str) -> str:
        buffer = self.program.buffers[name]
        dtype = self.names.bind(f"_{buffer.dtype}", dtype_from_name(buffer.dtype))
        text = f"{shape_text(buffer.shape)}, {shape_text(buffer.strides)}, {dtype}"
        return f"_check({self.names.local(name)}, {text}, {f'{what} {name}'!r})"

    def _drop(self, position: int, last_use: Mapping[str, int]) -> None:
        dead = sorted(name for name in self.live if last_use.get(name, -1) <= position)
        self.live.difference_update(dead)
        if dead:
            self.lines.append(f"del {', '.join(map(self.names.local, dead))}")

    def _results(self) -> list[str]:
        """Return the text of each result; what would share memory with an input or another result is copied."""
        shared = {*self.program.inputs, *self.program.constants, *self.offsets}
        texts = []
        for output in self.program.outputs:
            if not _calls.is_ref(output):
                texts.append(size_text(output) if isinstance(output, IndexExpr) else self.names.literal(output))
                continue
            text = self.refs.tensor(output)
            if output.buffer in shared:
                text = f"{self.names.bind('_copy', _calls.copy)}({text})"
            shared.add(output.buffer)
            texts.append(text)
        return texts


def _on_host(program: Program | Called) -> frozenset[str]:
    """Return the buffers of a program for another device that are on the CPU: no kernel touches those."""
    touched: set[str] = set()
    for item in program.items:
        if isinstance(item, Kernel | KernelCall):
            touched.update(item.reads(), item.writes())
    return frozenset(name for name, b in program.buffers.items() if b.device == "cpu" and name not in touched)


def _taken_as_they_are(program: Program | Called) -> frozenset[str]:
    """Return the inputs that are numbers which only extern calls on other tensors read.

    ATen brings such a number to the device if need be. Some it wants on the CPU, such as what dropout in an attention
    has drawn, and the graph doesn't tell.
    """
    wanted: set[str] = {value.buffer for value in program.outputs if _calls.is_ref(value)}
    for item in program.items:
        if not isinstance(item, Extern) or not any(ref.shape for ref in item.refs()):
            wanted |= item.reads()
    read = {name for item in program.items for name in item.reads()}
    return frozenset(n for n in program.inputs if n in read - wanted and not program.buffers[n].shape)


def _uses_any(program: Program | Called, buffers: Set[str]) -> bool:
    used = {value.buffer for value in program.outputs if _calls.is_ref(value)}
    for item in program.items:
        if isinstance(item, Extern):
            used.update(item.outs, item.reads())
    return not buffers.isdisjoint(used)


def _draws(item: Extern) -> bool:
    """Tell whether a call may draw random numbers: attention without dropout doesn't."""
    if isinstance(item.target, HigherOrderOp):
        return effects(item.target).random
    if torch.Tag.nondeterministic_seeded not in getattr(item.target, "tags", (torch.Tag.nondeterministic_seeded,)):
        return False
    arguments = item.target._schema.arguments if isinstance(item.target, torch._ops.OpOverload) else ()
    for position, argument in enumerate(arguments):
        if argument.name == "dropout_p":
            dropout = item.args[position] if position < len(item.args) else dict(item.kwargs).get("dropout_p", 0.0)
            return bool(dropout != 0.0)
    return True
