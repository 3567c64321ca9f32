"""The symbols of one capture: which sizes and numbers are symbolic, where they are read, and their nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch

from intarsia_ir.guards import TypeGuard
from intarsia_ir.records import (
    ArgumentSource,
    ArraySource,
    AttributeSource,
    CellSource,
    DictItemSource,
    GlobalSource,
    ItemSource,
    LengthSource,
    ModuleSource,
    Origin,
    PlainAttributeSource,
    SizeFacts,
    SizeSource,
    Source,
    TypeSource,
)
from intarsia_pyeval.breaks import Break, NeedsSymbols
from intarsia_pyeval.extension import Symbols
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import Const, boolean
from intarsia_recorder import (
    SymbolTable,
    WholeRecurrent,
    call_as_in_eager,
    composites_in_python,
)
from intarsia_shapes import Mark, ShapeEnv, check_marks, fake_mode, fakeify, freeze, marks_of
from intarsia_tensorcapture.data_sizes import limited
from intarsia_tensorcapture.numbers import SYMBOLIC, SymbolicNumber
from intarsia_tensorcapture.watching import WatchedMode

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording, TensorValue

__all__ = ["Sizes"]


_LARGEST = 1 << 48  # small enough for a few products to fit 64 bits
_ITEMS = (ItemSource, DictItemSource)
_ATTRIBUTES = (AttributeSource, PlainAttributeSource)
_RESERVED = frozenset({"cell", "dict", "globals", "len", "modules", "type"})  # in the text of a source they say more


class Sizes:
    """Symbols of a capture. Without an environment every size is a constant.

    Args:
        plugin: The plug-in that records.
        tx: The capture.
        symbols: Which sizes and numbers are symbols.
    """

    def __init__(self, plugin: Recording, tx: Tracer, symbols: Symbols) -> None:
        self.plugin = plugin
        self.symbolic = symbols.symbolic
        self.marks_count = symbols.marks
        self.env: ShapeEnv | None = None
        self.mode = WatchedMode()
        self.symbol_sources: dict[Any, Source] = {}
        self.numbers: dict[int, SymbolicNumber] = {}  # id of a source -> its number
        self._unlifted: dict[Any, SymbolicNumber] = {}
        self.shown: dict[
            Any, tuple[TensorValue, int | None]
        ] = {}  # symbol -> result with it as a size, or as its number
        self.within: dict[TensorValue, Sequence[int]] = {}  # inputs that others are made of -> dimensions with symbols
        self.n_checked = 0  # relations that the environment took to be true, of which the graph has checks
        self.held: dict[Any, TensorValue] = {}  # tensor and how often it was written -> 0-dim copy of what was in it
        self.computed: dict[Any, Value] = {}  # the same -> the number in it, where it is known
        self.shown_data: set[int] = set()  # memory that `data` shows: writes to it are not counted
        self.from_front: dict[Any, TensorValue] = {}  # 0-dim tensor, its version, a size -> the index from the front
        self.said: dict[TensorValue, list[Any]] = {}  # 0-dim tensor -> comparisons that the program relied on
        self.modules: dict[int, Source] = {}  # id of a source -> the source, where a module is
        self.in_tensors: dict[TensorValue, SymbolicNumber] = {}  # 0-dim tensor -> the number in it, used as a size
        if symbols.enabled:
            self.env = ShapeEnv()
            self.env.allow_scalar_outputs = False  # numbers in tensors are left open: see `items`
            self.env.locate = tx.frames.origin
            self.mode = cast(WatchedMode, fake_mode(self.env, kind=WatchedMode))
            self.mode.allow_scalar_outputs = False
            self.table = SymbolTable(plugin.graph, self.env)

    def is_open(self, source: Source, cls: type) -> bool:
        """Tell whether a number changed before, or is an argument or an int in one where every number is a symbol.

        What a module has is fixed in any case: of its many numbers few ever change.
        """
        asked = self.symbolic
        return source in asked.numbers or (asked.every and self._is_given(source, within_objects=cls is int))

    def _is_given(self, source: Source, *, within_objects: bool) -> bool:
        """Tell whether something is an argument, an item of one, or an attribute of what is no module."""
        followed = (*_ITEMS, *_ATTRIBUTES) if within_objects else _ITEMS
        while isinstance(source, followed):
            source = source.base
            if id(source) in self.modules:
                return False
        return isinstance(source, ArgumentSource)

    def need_env(self) -> ShapeEnv:
        """Return the environment.

        Raises:
            NeedsSymbols: There is none yet: another attempt begins with one.
            Break: There may be none.
        """
        if self.env is None and not self.marks_count:
            raise Break("tracer.data_dependent", "a size depends on data, and sizes are to be constants")
        if self.env is None:
            raise NeedsSymbols
        return self.env

    def forget(self) -> None:
        """Let go of the capture: the environment outlives it, and would keep what was looked at alive."""
        if self.env is not None:
            self.env.locate = None
            self.env.allow_scalar_outputs = True  # later stages record `item` as it is

    def run(self, function: Any, args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Run an operation on fake tensors: most composites with symbolic sizes come apart in Python."""
        if function in WholeRecurrent.functions:
            # called, as torch asks no modes where the program has switched them off, as packed sequences do
            return WholeRecurrent(self.mode).__torch_function__(function, (), args, keywords)
        if self.env is None:
            return function(*args, **keywords)
        with composites_in_python(self.mode):
            return call_as_in_eager(function, args, keywords)

    def facts(self) -> SizeFacts:
        """Return what was relied on.

        Raises:
            InvalidArgumentError: It is more than a mark promised.
        """
        if self.env is None:
            return SizeFacts()
        check_marks(self.env)
        return freeze(self.env)

    # -- inputs --------------------------------------------------------------------------------------------------

    def input(self, value: TensorValue, real: torch.Tensor) -> Any:
        """Return the fake tensor of an input of the graph."""
        symbolic = self.fake_input(value, real)
        if symbolic is not None:
            return symbolic
        plain = type(real) is torch.Tensor or type(real) is torch.nn.Parameter
        simple = plain and real.is_leaf and not real.is_conj() and not real.is_neg() and not real.is_inference()
        if not simple:
            return self.mode.from_tensor(real, static_shapes=True)
        with torch.no_grad():
            shell = torch.empty_strided(
                real.shape, real.stride(), dtype=real.dtype, device="meta", requires_grad=real.requires_grad
            )
        return self.plugin.fake_of(shell, real.device)

    def fake_input(self, value: TensorValue, real: torch.Tensor, given: Mapping[int, Mark] | None = None) -> Any:
        """Return the fake tensor of an input some of whose sizes are symbols; None when none is.

        Raises:
            NeedsSymbols: A size is marked dynamic, and there is no environment yet.
        """
        if given is None:  # what is lifted may be a plain view of what the program has, and marked
            given = marks_of(real if value.real is None else value.real)
        marks = given if self.marks_count else {}
        if self.env is None:
            if any(mark.dynamic for mark in marks.values()) and _readable(value.source):
                raise NeedsSymbols
            return None
        dims = self._symbolic_dims(value, real, marks)
        source = value.source
        if source is None or not dims or not _can_have_symbols(real) or not _readable(source):
            return None
        ranges = {d: (mark.low, mark.high) for d, mark in marks.items() if mark.dynamic}
        strides = self._symbolic_strides(value)
        fake = fakeify(self.mode, real, str(source), dims, ranges=ranges, strides=strides, apart=True)
        for kind, numbers in (("size", fake.shape), ("stride", fake.stride())):
            for d, number in enumerate(numbers):
                if isinstance(number, torch.SymInt) and number.node._expr.is_Symbol:
                    self.symbol_sources.setdefault(number.node._expr, SizeSource(source, kind, d))
        return fake

    def whole(self, value: TensorValue, real: torch.Tensor) -> Any:
        """Return a tensor with the sizes and strides of an input that is made of others; some may be symbols."""
        with torch.no_grad():
            shell = torch.empty_strided(real.shape, real.stride(), dtype=real.dtype, device="meta")
        fake = self.fake_input(value, shell, marks_of(real))
        if fake is None:
            return real
        for kind, numbers in (("size", fake.shape), ("stride", fake.stride())):
            for d, number in enumerate(numbers):
                if isinstance(number, torch.SymInt) and number.node._expr.is_Symbol:
                    assert value.source is not None
                    place = SizeSource(value.source, kind, d)
                    self._unlifted.setdefault(number.node._expr, SymbolicNumber(self, number, place))
        return fake

    def settle_whole(self, whole: Any, value: TensorValue, parts: Sequence[TensorValue]) -> None:
        """Choose which sizes of the parts of an input are symbols: those that are equal to one of its own.

        Where these are fewer, all are: two numbers may share an element.
        """
        assert value.real is not None
        dims = [d for d, size in enumerate(whole.shape) if isinstance(size, torch.SymInt)]
        sizes = {value.real.shape[d] for d in dims}
        for part in parts:
            shape = () if part.real is None else part.real.shape
            found = [d for d, size in enumerate(shape) if size in sizes]
            same = shape == value.real.shape
            fewer = len(found) < min(len(dims), len(shape))
            self.within[part] = dims if same else range(len(shape)) if fewer else found

    def _symbolic_dims(self, value: TensorValue, real: torch.Tensor, marks: Any) -> list[int]:
        """Return the dimensions of an input that are symbols."""
        if value in self.within:
            return list(self.within[value])
        assert value.source is not None or not marks
        chosen: Collection[int] = self.symbolic.sizes.get(value.source, ()) if value.source is not None else ()
        if isinstance(real, torch.nn.Parameter):
            chosen = ()
        elif self.symbolic.every and "_buffers" not in str(value.source):
            chosen = range(real.dim())
        static = Mark(False)
        return [d for d in range(real.dim()) if marks.get(d, static if d not in chosen else Mark(True)).dynamic]

    def _symbolic_strides(self, value: TensorValue) -> Collection[int] | None:
        """Return the dimensions whose stride may be a symbol of its own; None: all."""
        if self.symbolic.every:
            return None
        return self.symbolic.strides.get(value.source, ()) if value.source is not None else ()

    def bind(self, fake: Any, node: torch.fx.Node) -> None:
        """Note that symbols can be read from an input."""
        if self.env is not None:
            self.table.bind(fake, node)
            for number in (*fake.shape, *fake.stride()) if isinstance(fake, torch.Tensor) else ():
                if isinstance(number, torch.SymInt):
                    self._unlifted.pop(number.node._expr, None)

    def number(self, value: int, source: Source) -> Value | None:
        """Model a Python int as a symbol, where it is to be one; None: it is a constant."""
        if self.env is None or not 0 <= value < _LARGEST or not _readable(source):
            return None
        known = self.numbers.get(id(source))
        if known is None:
            symbol = self.env.create_number(value, str(source))
            bool(symbol < _LARGEST)  # relied on: kernels take it in 64 bits
            known = self.numbers[id(source)] = SymbolicNumber(self, symbol, source)
            self.symbol_sources[symbol.node._expr] = source
            self._unlifted[symbol.node._expr] = known
            if not isinstance(source, LengthSource):
                self.plugin.tx.guards.add(TypeGuard, source, int)
        return known

    # -- values --------------------------------------------------------------------------------------------------

    def model(self, number: Any) -> Value:
        """Model a number, symbolic or not."""
        if not isinstance(number, SYMBOLIC):
            return boolean(number) if isinstance(number, bool) else Const(number)
        node = number.node
        if node.is_nested_int():
            raise Break("tracer.tensor_value", "the size of a nested tensor that differs from row to row is asked for")
        constant = node.constant
        if constant is None and node.expr.is_number:
            constant = node.pytype(node.expr)
        elif constant is None and node.expr in (True, False):
            constant = bool(node.expr)
        return SymbolicNumber(self, number) if constant is None else self.model(node.pytype(constant))

    def is_tensor(self, value: Value) -> bool:
        """Tell whether a value is a tensor."""
        return issubclass(value.type(), torch.Tensor)

    def is_size(self, number: Any) -> None:
        """Rely on what a size, an index or the like asks of the numbers that it is computed of."""
        if self.env is not None:
            self.env.is_size(number)

    def beyond_one(self, number: Any) -> bool:
        """Rely on the integers that a number is computed of to be at least 2, if all are; tell whether it is new."""
        env = self.env
        if env is None:
            return False
        symbols = env.small_numbers(number)
        if any(env.backed_var_to_val[symbol] < env.smallest_size for symbol in symbols):
            return False
        self.is_size(number)
        return bool(symbols)

    def limit(self, number: Any) -> None:
        """Rely on symbols that data decides to be small enough to compute with."""
        limited(self.plugin, number)

    def node(self, value: SymbolicNumber, origin: Origin | None) -> Any:
        """Return the node that computes a number, or the plain number."""
        return self.node_of(value.number, origin)

    def node_of(self, number: Any, origin: Origin | None) -> Any:
        """Return the node that computes a symbolic number, or the plain number.

        Raises:
            Break: Nothing yields one of its symbols: an operation made it for itself.
        """
        for symbol in sorted(number.node.expr.free_symbols, key=str):
            given = self._unlifted.pop(symbol, None)
            if given is not None:
                self.plugin.lift_number(given)
        self.table.where = (origin,) if origin is not None else ()
        if number.node.hint is None and not self.table.knows(number.node.expr):
            raise Break("tracer.data_dependent", f"{number}, inside of an operation, depends on data")
        return self.table.node(number)


def _can_have_symbols(tensor: torch.Tensor) -> bool:
    """Tell whether a fake tensor made from sizes and strides stands for a tensor."""
    return not tensor.is_inference() and (tensor.is_leaf or not tensor.requires_grad)


def _readable(source: Source | None) -> bool:
    """Tell whether the text of a source says where it is, without doubt."""
    match source:
        case ArgumentSource(name=name):
            return name.isidentifier() and name not in _RESERVED
        case GlobalSource() | CellSource() | ModuleSource():
            return True
        case AttributeSource(base=base, name=name) | PlainAttributeSource(base=base, name=name):
            return name.isidentifier() and _readable(base)
        case ItemSource(base=base, key=key) | DictItemSource(base=base, key=key):
            return type(key) in (str, int) and _readable(base)
        case TypeSource(base=base) | ArraySource(base=base) | LengthSource(base=base):
            return _readable(base)
    return False
