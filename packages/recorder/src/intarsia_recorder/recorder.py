"""The dispatch mode that writes a graph of ATen ops while a program runs on fake tensors.

Order of modes, outermost first: FakeTensorMode, Recorder. Ops arrive here below autograd and autocast. Terms:
  tracked    a fake tensor that some node of the graph produces; found by object identity, so all are kept alive
  constant   a real tensor that the program closes over; becomes a buffer of `root` behind a get_attr node
  phase      which part of a training step is being recorded ("forward", "backward")
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Mapping
from types import CodeType
from typing import Any, NamedTuple

import torch
import torch.fx as fx
from torch._C import DispatchKey
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode

from intarsia_ir import meta
from intarsia_ir.errors import InternalError, UnsupportedError
from intarsia_ir.higher_order import HigherOrderOp
from intarsia_ir.records import Origin
from intarsia_recorder._fx import call_node
from intarsia_recorder.composites import COMPOSITES_IN_CPP
from intarsia_recorder.iteration import is_row_major
from intarsia_recorder.metacache import MetaCache, snapshot
from intarsia_recorder.stacks import user_frames
from intarsia_recorder.strides import with_strides_of
from intarsia_recorder.symbols import SymbolTable, apart_from_symbols
from intarsia_recorder.zeros import Zeros

__all__ = ["Decompositions", "Recorder"]

aten = torch.ops.aten
Decompositions = Mapping[OpOverload, Callable[..., Any]]
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_DEVICE = torch.ops.prim.device.default

_NUMBERS = (bool, int, float, complex)
_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
_PLAIN = {bool, int, float, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}

_OF_ONE_GRAPH = (
    "graph",
    "root",
    "symbols",
    "_producers",
    "_holders",
    "_last_placeholder",
    "_last_item",
    "_alive",
    "_names",
    "_waiting",
    "_asserted",
)

_ASSERTIONS = {aten._assert_async.default, aten._assert_async.msg}

# what torch.tensor(...) ends with
_LIFTS = {aten.lift_fresh.default, aten.lift_fresh_copy.default}

# questions about metadata: answered, never recorded
_QUERIES = {
    aten.is_contiguous.default,
    aten.is_contiguous.memory_format,
    aten.is_non_overlapping_and_dense.default,
    aten.is_strides_like_format.default,
    aten.numel.default,
    aten.size.default,
    aten.storage_offset.default,
    aten.stride.default,
    aten.sym_is_contiguous.default,
    aten.sym_numel.default,
    aten.sym_size.default,
    aten.sym_storage_offset.default,
    aten.sym_stride.default,
    _DEVICE,
}


class _Kind(NamedTuple):
    """What an op is to a recorder, looked up once.

    Args:
        op: The op, kept so that no other gets its address.
        replacement: What is recorded instead.
        is_query: It asks for metadata.
        is_composite: It is made of other ops: in C++, or, where sizes are symbolic, in C++ or Python.
        is_lift: It makes a tensor of a literal.
        is_assertion: It only raises, which is for the running program to do, even if the data is known already.
        changes_view: It changes what a view shows, in place.
        takes_tensor: Its first operand is a tensor.
        is_special: It has a replacement, is a query or a composite, or no op of one schema.
    """

    op: Any
    replacement: Callable[..., Any] | None
    is_query: bool
    is_composite: bool = False
    is_lift: bool = False
    is_assertion: bool = False
    changes_view: bool = False
    takes_tensor: bool = False
    is_special: bool = True


def _kind_of(func: Any, decompositions: Decompositions, is_symbolic: bool) -> _Kind:
    replacement, is_query = decompositions.get(func), func in _QUERIES
    key = DispatchKey.CompositeImplicitAutograd
    if is_query or not isinstance(func, OpOverload):  # the dispatcher doesn't know all that ask
        return _Kind(func, replacement, is_query)
    if is_symbolic and func not in COMPOSITES_IN_CPP:
        is_composite = func.has_kernel_for_dispatch_key(key)
    else:
        is_composite = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key)
    operands = func._schema.arguments
    return _Kind(
        func,
        replacement,
        is_query,
        is_composite,
        is_lift=func in _LIFTS,
        is_assertion=func in _ASSERTIONS,
        changes_view=torch.Tag.inplace_view in func.tags,
        takes_tensor=bool(operands) and operands[0].type.isSubtypeOf(torch._C.TensorType.get()),
        is_special=is_composite or replacement is not None,
    )


class Recorder(TorchDispatchMode):
    """Records every ATen op that runs under it.

    Args:
        fake_mode: The mode of all fake tensors in the program.
        decompositions: ATen overload -> Python function that replaces it; one that returns NotImplemented declines.
        cache: Op results to start from; a new one by default.

    Attributes:
        graph: The graph so far.
        root: Module that holds the constants.
        where: Origins given to new nodes; None: look at the Python stack, and for ops that autograd runs in the
            backward pass at the stack of the forward op that they belong to.
        phase: Given to new nodes.
        mark: Region that new nodes belong to: kind and number.
    """

    def __init__(
        self, fake_mode: FakeTensorMode, *, decompositions: Decompositions | None = None, cache: MetaCache | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fake_mode = fake_mode
        self.decompositions = dict(decompositions or {})
        self.cache = cache or MetaCache(fake_mode)
        self._begin()
        self.env = self.symbols.env
        self._is_symbolic = fake_mode.shape_env is not None
        self.where: tuple[Origin, ...] | None = None
        self.phase = "forward"
        self.mark: tuple[str, int] | None = None
        self._n_regions = 0
        self._constants: dict[int, tuple[torch.Tensor, FakeTensor]] = {}
        self._constant_names: dict[int, str] = {}
        self._reals: dict[int, torch.Tensor] = {}
        self._frames: dict[tuple[int, int], tuple[CodeType, Origin | None]] = {}
        self._stack_of_sequence: dict[int, tuple[Origin, ...]] = {}
        self._n_asserts = 0  # of the environment that were looked at
        self._zeros = Zeros(self._make_zeros)
        self._kinds: dict[int, _Kind] = {}  # by address, because overloads hash in Python

    def _begin(self) -> None:
        """Begin a graph: what is set here belongs to one."""
        self.graph, self.root = fx.Graph(), torch.nn.Module()
        self.symbols = SymbolTable(self.graph, self.fake_mode.shape_env)
        # object id -> where it comes from: a node, or an item of a node that gets its getitem on first use
        self._producers: dict[int, fx.Node | tuple[fx.Node, int]] = {}
        self._holders: dict[int, list[fx.Node]] = {}
        self._last_placeholder: fx.Node | None = None
        self._last_item: dict[fx.Node, fx.Node] = {}
        self._alive: list[Any] = []
        self._names: dict[str, int] = {}
        self._waiting: list[Any] = []  # asserts about sizes that nothing yields yet
        self._asserted: set[Any] = set()

    @contextlib.contextmanager
    def subgraph(self) -> Iterator[None]:
        """Record what runs in the block into a graph of its own, which is `graph` there, with its own `root`.

        Tensors from outside are unknown inside, but as inputs: give each a placeholder.
        """
        outer = {name: getattr(self, name) for name in _OF_ONE_GRAPH}
        self._begin()
        try:
            yield
        finally:
            outer["_waiting"] += self._waiting
            vars(self).update(outer)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from wrapping `__torch_dispatch__`: the wrapper costs more than a recorded op."""
        return False

    # ---- inputs, constants, outputs

    def placeholder(self, value: Any, name: str, where: tuple[Origin, ...] = ()) -> fx.Node:
        """Add an input behind the existing ones; `value` is a fake tensor or a number."""
        first = next(iter(self.graph.nodes), None)
        if self._last_placeholder is not None:
            place: Any = self.graph.inserting_after(self._last_placeholder)
        else:
            place = self.graph.inserting_before(first) if first is not None else contextlib.nullcontext()
        with place:
            node = self._last_placeholder = self.graph.placeholder(apart_from_symbols(name))
        meta.set_value(node, value)
        meta.set_origins(node, where)
        self._produce(value, node)
        self.symbols.bind(value, node)
        return node

    def constant(self, real: torch.Tensor, name: str = "") -> FakeTensor:
        """Return the fake tensor that stands for a real tensor; its get_attr node appears on first use.

        Args:
            real: Any tensor that isn't fake.
            name: Preferred name of the buffer, such as the path of a parameter.
        """
        pair = self._constants.get(id(real))
        if pair is None:
            fake = self.fake_mode.from_tensor(real, static_shapes=True)
            pair = self._constants[id(real)] = real, fake
            self._constant_names[id(fake)] = name.replace(".", "_")
            self._reals[id(fake)] = real
        return pair[1]

    def real_constant(self, fake: torch.Tensor) -> torch.Tensor | None:
        """Return the real tensor that `fake` stands for, or None when a node computes it."""
        return self._reals.get(id(fake))

    def node_of(self, value: Any) -> fx.Node:
        """Return the node that produces a tracked tensor, a constant or a symbolic number.

        Raises:
            InternalError: `value` is a fake tensor that didn't come from this recording.
        """
        node = self.argument(value)
        assert isinstance(node, fx.Node), value
        return node

    @contextlib.contextmanager
    def region(self, kind: str) -> Iterator[None]:
        """Mark the nodes recorded inside as one region of this kind, such as `"checkpoint"`."""
        outer, self.mark = self.mark, (kind, self._n_regions)
        self._n_regions += 1
        try:
            yield
        finally:
            self.mark = outer

    def emit_deferred_asserts(self) -> None:
        """Write the relations over sizes that depend on data, which the running program has to check, as they come up.

        What relies on one comes behind its check: a size that is too large would be used to address memory.
        """
        if self.env is None:
            return
        self._waiting += self.env.asserts[self._n_asserts :]
        self._n_asserts = len(self.env.asserts)
        where, waiting, self._waiting = self.where, self._waiting, []
        for relation in waiting:
            if not self.symbols.knows(relation.expr):
                self._waiting.append(relation)
            elif relation not in self._asserted:
                self._asserted.add(relation)
                self.where = () if relation.origin is None else (relation.origin,)
                self.symbols.where = self.where
                condition = self.symbols.node(relation.expr)
                message = f"{relation.expr} doesn't hold"
                node = self.graph.call_function(aten._assert_scalar.default, (condition, message))
                self._describe(node, None)
        self.where = where

    def forget_autograd(self) -> None:
        """Cut node values off from autograd graphs, which would keep a whole forward pass alive."""
        for node in self.graph.nodes:
            if node.op != "placeholder" and meta.has_value(node):
                meta.set_value(node, self._without_history(meta.value(node)))

    # ---- one op

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is _DEVICE and type(args[0]) is FakeTensor:
            return args[0].fake_device  # C++ autograd asks this thousands of times
        for cls in types:
            if cls is not FakeTensor and hasattr(cls, "__tensor_flatten__"):
                return NotImplemented  # its own `__torch_dispatch__` says what it does to the tensors inside
        args, kwargs = self._zeros.found(args), self._zeros.placed(func, kwargs or {})
        kind = self._kinds.get(id(func))
        if kind is None:
            kind = self._kinds[id(func)] = _kind_of(func, self.decompositions, self._is_symbolic)
        if kind.is_special:
            if kind.is_query:
                return func(*args, **kwargs)
            replaced = self._decompose(kind, args, kwargs)
            if replaced is not NotImplemented:
                return replaced
        if kind.takes_tensor and type(args[0]) in _NUMBERS and not any(isinstance(a, torch.Tensor) for a in args):
            return self.constant(_of_numbers(func, args, kwargs))
        if kind.is_lift:
            func, result = aten.lift_fresh_copy.default, self._lift(args[0])
        else:
            args = self._fakes(args)
            kwargs = self._fakes(kwargs) if kwargs else kwargs
            if kind.changes_view:
                self._freeze_values_of(args[0])
            result = None if kind.is_assertion else self.cache.call(func, args, kwargs)
        if type(result) in _NUMBERS:
            return result  # `item()` of a literal: known, and nothing for a graph to compute
        if self.env is not None and len(self.env.asserts) > self._n_asserts:
            self.emit_deferred_asserts()
        # recorded only now: an op that raises leaves no node behind
        node = call_node(self.graph, func, self.argument(args), self.argument(kwargs) if kwargs else kwargs)
        self._describe(node, result)
        self._produce(result, node)
        self._bind_fresh_symbols(result, node)
        self._zeros.note(func, result)
        return result

    def _make_zeros(self, *args: Any, **kwargs: Any) -> Any:
        with self:
            return aten._efficientzerotensor.default(*args, **kwargs)

    def whole(self, op: OpOverload | HigherOrderOp, args: tuple[Any, ...], result: Any) -> Any:
        """Record an op as it is, be it composite, with the fake tensors that it gives; return these."""
        node = call_node(self.graph, op, self.argument(self._fakes(args)), {})
        self._describe(node, result)
        self._produce(result, node)
        return result

    def _decompose(self, kind: _Kind, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run what replaces an op, if anything does, under this recorder."""
        func, replacement = kind.op, kind.replacement
        if replacement is not None:
            args, kwargs = self._fakes(args), self._fakes(kwargs)
            with self:
                result = replacement(*args, **kwargs)
            if result is not NotImplemented:
                _count_writes_of_lists(func, args)
                return self._laid_out(result, func, args, kwargs)
        if not isinstance(func, OpOverload):
            raise UnsupportedError(
                f"{func} takes functions as operands", code="recorder.higher_order", where=self._origins()
            )
        if not kind.is_composite:
            return NotImplemented
        args, kwargs = self._fakes(args), self._fakes(kwargs)
        with self:
            if not self._is_symbolic:
                return func._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
            return func.decompose(*args, **kwargs)

    def _laid_out(self, result: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Give what a decomposition returned the strides that the op itself returns, which its parts may not."""
        several = isinstance(result, (tuple, list))
        tensors = [x for x in (*args, *(result if several else (result,))) if type(x) is FakeTensor]
        contiguous = is_row_major if self._is_symbolic else torch.Tensor.is_contiguous
        if func._schema.is_mutable or all(map(contiguous, tensors)):
            return result
        expected = self.cache.call(func, args, kwargs)
        with self:
            if not several:
                return with_strides_of(result, expected)
            return tuple([with_strides_of(x, like) for x, like in zip(result, expected, strict=True)])

    def _lift(self, literal: torch.Tensor) -> Any:
        """Return the fresh fake tensor that `torch.tensor(...)` gives; one element knows its value, for `item()`."""
        if not isinstance(literal, FakeTensor):
            lifted = aten.lift_fresh_copy.default(literal)
            if lifted.constant is not None:
                return lifted
        return self.cache.call(aten.clone.default, (self._fakes(literal),), {})

    def _fakes(self, value: Any) -> Any:
        """Replace the real tensors in an argument by fake ones."""
        kind = type(value)
        if kind is FakeTensor or kind in _PLAIN:
            return value
        if kind is tuple:
            for item in value:
                if type(item) is not FakeTensor and type(item) not in _PLAIN:
                    return tuple([self._fakes(item) for item in value])
            return value
        if isinstance(value, torch.Tensor):
            return value if isinstance(value, FakeTensor) else self.constant(value)
        if isinstance(value, (list, tuple)):
            new = [self._fakes(item) for item in value]
            return type(value)(new) if any(map(operator.is_not, new, value)) else value
        if kind is dict:
            return {key: self._fakes(item) for key, item in value.items()} if value else value
        return value

    # ---- values and nodes

    def argument(self, value: Any) -> Any:
        """Return `value` with nodes in place of tensors and symbolic numbers."""
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is FakeTensor:
            producer = self._producers.get(id(value))
            return producer if type(producer) is fx.Node else self._tensor_node(value)
        if isinstance(value, torch.Tensor):
            return self._tensor_node(value)
        if isinstance(value, _SYMBOLIC):
            self.symbols.where = self._origins() if self.where is None else self.where
            return self.symbols.node(value)
        if kind is tuple:
            return tuple([self.argument(item) for item in value])
        if isinstance(value, (list, tuple)):
            return [self.argument(item) for item in value]
        if kind is dict:
            return {key: self.argument(item) for key, item in value.items()}
        if isinstance(value, torch.Generator):
            raise UnsupportedError(
                "a random op is given a generator object, which a graph can't hold",
                code="recorder.generator",
                where=self._origins(),
                hints=("use the default generator",),
            )
        return value

    def _tensor_node(self, tensor: torch.Tensor) -> fx.Node:
        producer = self._producers.get(id(tensor))
        if producer is None:
            return self._constant_node(tensor)
        if isinstance(producer, fx.Node):
            return producer
        source, position = producer
        with self.graph.inserting_after(self._last_item.get(source, source)):
            item = self.graph.call_function(operator.getitem, (source, position))
        item.meta = {**source.meta}
        meta.set_value(item, tensor)
        self._producers[id(tensor)] = self._last_item[source] = item
        self._holders[id(tensor)].append(item)
        return item

    def _constant_node(self, tensor: torch.Tensor) -> fx.Node:
        """Add the get_attr node of a constant."""
        real: torch.Tensor | None = self._reals.get(id(tensor))
        fake = tensor
        if real is None:
            real = getattr(tensor, "constant", None) if isinstance(tensor, FakeTensor) else tensor
            if real is None:
                raise InternalError(
                    f"a fake tensor of shape {tuple(tensor.shape)} was used that this recording didn't make",
                    code="recorder.leak",
                    where=self._origins(),
                    hints=("a tensor may have been kept from an earlier recording, in a list or an attribute",),
                )
            fake = self.constant(real)
        producer = self._producers.get(id(fake))
        if isinstance(producer, fx.Node):
            return producer
        name = self._free_name(apart_from_symbols(self._constant_names.get(id(fake)) or "constant"))
        self.root.register_buffer(name, real)
        node = self.graph.get_attr(name)
        self._describe(node, fake)
        self._produce(fake, node)
        return node

    def _free_name(self, wanted: str) -> str:
        """Return `wanted`, with a number if another constant has that name."""
        number = self._names.get(wanted, 0)
        self._names[wanted] = number + 1
        name = f"{wanted}_{number}" if number else wanted
        return name if not hasattr(self.root, name) else self._free_name(wanted)

    def _produce(self, value: Any, node: fx.Node) -> None:
        """Note that `node` produces the tensors in `value`, as its result or as items of it."""
        if isinstance(value, torch.Tensor):
            self._producers[id(value)] = node
            self._holders.setdefault(id(value), []).append(node)
            self._alive.append(value)
        elif isinstance(value, (list, tuple)):
            for position, item in enumerate(value):
                if isinstance(item, torch.Tensor):
                    self._producers[id(item)] = node, position
                    self._holders.setdefault(id(item), []).append(node)
                    self._alive.append(item)
                elif isinstance(item, (list, tuple)):
                    self._produce(item, self._part(node, position, item))

    def _part(self, node: fx.Node, position: int, value: Any) -> fx.Node:
        """Add the list at `position` of a node that gives lists among other results."""
        part = self.graph.call_function(operator.getitem, (node, position))
        part.meta = {**node.meta}
        meta.set_value(part, value)
        return part

    def _bind_fresh_symbols(self, result: Any, node: fx.Node) -> None:
        """Note from which node the symbols that the op made for data-dependent sizes can be read."""
        if self.env is None or not self.env.pending_fresh_unbacked_symbols:
            return
        if isinstance(result, (list, tuple)):
            for item in result:
                if isinstance(item, torch.Tensor):
                    self.symbols.bind(item, self._tensor_node(item))
        else:
            self.symbols.bind(result, node)
        self.env.pending_fresh_unbacked_symbols.clear()

    def _describe(self, node: fx.Node, value: Any) -> None:
        """Set value, origins, phase and region of a new node."""
        meta.set_value(node, value)
        meta.set_origins(node, self._origins())
        if self.phase != "forward":
            meta.set_phase(node, self.phase)
        if self.mark is not None:
            meta.set_region(node, *self.mark)

    def _origins(self) -> tuple[Origin, ...]:
        """Return where the op that runs now comes from."""
        backward = torch._C._current_autograd_node()
        if backward is None:
            origins = self.where if self.where is not None else user_frames(skip=3, known=self._frames)
            # autograd numbers its nodes in the order of creation; the forward op that runs now made the last one, or
            # none, and then that one is of an op before
            self._stack_of_sequence.setdefault(torch.autograd._get_sequence_nr() - 1, origins)
            return origins
        forward = self._stack_of_sequence.get(backward._sequence_nr())
        return forward or (self.where if self.where is not None else user_frames(skip=3, known=self._frames))

    def _freeze_values_of(self, tensor: torch.Tensor) -> None:
        """Give nodes that hold `tensor` its present metadata, because an in-place view op is about to change it."""
        self._tensor_node(tensor)  # an item gets its node now: later it wouldn't be what its source returned
        frozen = snapshot(self.fake_mode, tensor)
        for node in self._holders.pop(id(tensor), []):
            held = meta.value(node)
            if held is tensor:
                meta.set_value(node, frozen)
            elif isinstance(held, (list, tuple)):
                meta.set_value(node, type(held)([frozen if item is tensor else item for item in held]))

    def _without_history(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return snapshot(self.fake_mode, value) if value.requires_grad else value
        if isinstance(value, (list, tuple)):
            return type(value)([self._without_history(item) for item in value])
        return value


def _count_writes_of_lists(func: OpOverload, args: tuple[Any, ...]) -> None:
    """Count the writes of an op among the versions of its tensors: torch counts those of lists below this mode."""
    if func._schema.is_mutable:
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if isinstance(value, (list, tuple)) and argument.alias_info is not None and argument.alias_info.is_write:
                torch.autograd.graph.increment_version(value)


def _of_numbers(func: OpOverload, numbers: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """Return what an op makes of literals in place of tensors, such as the conjugate of `1j` in a gradient."""
    with unset_fake_temporarily():
        operands = [
            torch.scalar_tensor(number, dtype=_DTYPES[type(number)]) if argument.type.kind() == "TensorType" else number
            for number, argument in zip(numbers, func._schema.arguments, strict=False)
        ]
        result: torch.Tensor = func(*operands, **kwargs)
        return result.resolve_conj().resolve_neg()
