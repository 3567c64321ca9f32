"""The plug-in of the evaluator for torch: what it takes over, and the graph that it records."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.fx
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedOperatorException,
)
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from intarsia_ir import meta
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.guards import ConstantGuard, IdentityGuard, TensorGuard, TypeGuard
from intarsia_ir.records import (
    Fresh,
    InputSpec,
    Origin,
    Role,
    Signature,
    SizeFacts,
    Source,
)
from intarsia_ir.torch import is_jagged, is_wrapper
from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.checking import InVain, passed
from intarsia_pyeval.extension import Graph, Symbols
from intarsia_pyeval.semantics import texts
from intarsia_pyeval.stores import dict_store
from intarsia_pyeval.tracer import Extension
from intarsia_pyeval.values.base import Keywords, NotConstantError, Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.functions import Function, PythonFunction
from intarsia_pyeval.values.mappings import Dict
from intarsia_pyeval.values.numbers import OpenNumber
from intarsia_pyeval.values.objects import ClassValue, Foreign, Object
from intarsia_pyeval.values.sequences import Items, List, Slice, Tuple
from intarsia_shapes import plain_size
from intarsia_tensorcapture import (
    contexts,
    data_sizes,
    distributed,
    distributed_tensors,
    floats,
    foreach,
    fully_sharded,
    function_subclasses,
    generators,
    inference,
    messages,
    modules,
    nested,
    optimizers,
    overriding,
    scans,
    subclass_gradients,
    subclasses,
    transforms,
)
from intarsia_tensorcapture.ambient import Ambient, modes_active
from intarsia_tensorcapture.arrays.kinds import call_numpy
from intarsia_tensorcapture.arrays.values import ProductOfSizes
from intarsia_tensorcapture.arrays.wrapping import foreign_of_numpy, wrap_numpy
from intarsia_tensorcapture.calls import call_leaf_or_table
from intarsia_tensorcapture.described import (
    PLAIN,
    facts_of,
    is_traced,
    needs_node,
    readable_name,
    shown,
    special,
    tensors_in,
)
from intarsia_tensorcapture.devices import call_device_method, with_device
from intarsia_tensorcapture.flex import call_flex
from intarsia_tensorcapture.functions import (
    applied_class,
    applied_in_c,
    apply_function,
    refuse_effects_of_backward,
    refuse_sparse_gradients,
)
from intarsia_tensorcapture.indexing import item_of, narrowed, set_item_of
from intarsia_tensorcapture.items import settle_all, settled
from intarsia_tensorcapture.kernel_calls import call_compiler_object, call_of_compiler, is_of_compiler
from intarsia_tensorcapture.known import Known
from intarsia_tensorcapture.known_sizes import sized_by_known
from intarsia_tensorcapture.leaves import Leaves, MadeLeaf
from intarsia_tensorcapture.marks import call_marked_function, call_marked_object, stand_in_for
from intarsia_tensorcapture.memory import Memory, run_apart
from intarsia_tensorcapture.numbers import SYMBOLIC, SymbolicNumber
from intarsia_tensorcapture.operators import (
    is_of_torch,
    operator_of,
    refuse_call,
    refuse_mixed,
    refuse_raised,
    refuse_without_fake,
)
from intarsia_tensorcapture.parametrized import rely_on_parametrized
from intarsia_tensorcapture.replaced_data import replaced
from intarsia_tensorcapture.scalars import scalars_of
from intarsia_tensorcapture.scopes import Scopes, apart
from intarsia_tensorcapture.settings import dtype_to_name
from intarsia_tensorcapture.size_tensors import with_numbers
from intarsia_tensorcapture.sizes import Sizes
from intarsia_tensorcapture.spelling import spelled
from intarsia_tensorcapture.tables import ATOM_TYPES, PRODUCTS, QUANTISING, RESHAPING, is_inlined, is_leaf
from intarsia_tensorcapture.tensor import TensorValue, plain_number, tensors_of
from intarsia_tensorcapture.unrolled import call_unrolled
from intarsia_tensorcapture.watching import DRAWN_IN_VAIN, calls_out
from intarsia_tensorcapture.written_out import written_out

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__ = ["Tensors"]


_LEGACY = type(torch.FloatTensor)
_LOG = logging.getLogger("torch._subclasses.fake_tensor")


class Tensors(Extension):
    """Records torch operations as FX(torch) while the evaluator runs."""

    def __init__(self, tx: Tracer, symbols: Symbols) -> None:
        """Begin a graph under the grad mode and autocast state of the call."""
        self.tx = tx
        self.graph = torch.fx.Graph()
        self.scopes = Scopes(self.graph)
        self.leaves = Leaves()
        self.memory = Memory()
        self.sizes = Sizes(self, tx, symbols)
        self.mode = self.sizes.mode
        self.inputs: list[TensorValue | SymbolicNumber] = []
        self.floats: dict[Source, OpenNumber] = {}
        self.number_inputs: dict[Hashable, floats.NumberInput] = {}
        self.names: dict[str, int] = {}
        self.last_input: torch.fx.Node | None = None
        self.n_calls = 0
        self.gpu: torch.device | None = None  # that recorded operations are on
        self.region: tuple[str, int] | None = None  # what nodes are marked with: kind and number
        self.n_regions = 0
        self.told = False  # that the code is being compiled
        self.tells = True  # that it is, where it asks
        self.held: set[int] = set()
        self.relied_on: dict[type, Mapping[str, None]] = {}
        self.wrapped: dict[TensorValue, tuple[torch.fx.Node, int]] = {}
        self.begun: list[Value] = []  # collectives that the code hasn't been seen to wait for
        self.known = Known(self.graph)
        self.sharded: fully_sharded.ShardedCall | None = None  # that is being evaluated
        self.infinite = False  # numbers of the program that arrays are computed with
        self.hooks_guarded = False  # those that hold for all modules
        self.placeholders: dict[TensorValue | SymbolicNumber, Any] = {}  # inputs of the finished graph -> values
        self.input_names: dict[TensorValue | SymbolicNumber, str] = {}
        self.modes_active = modes_active()
        self.state = Ambient()
        self.log_was_off, _LOG.disabled = _LOG.disabled, True  # a refused operation is a break, and explained there

    def end(self) -> None:
        """Put the ambient state back."""
        _LOG.disabled = self.log_was_off
        self.state.restore()
        self.sizes.forget()
        vars(self).clear()  # the models of tensors refer to it, and it to them

    def answers_differ(self) -> bool:
        """Tell whether the code was told that it is being compiled."""
        return self.told

    def answer_as_native(self) -> None:
        """Tell the code from now on that it isn't being compiled."""
        self.tells = False

    def position(self) -> int:
        """Return the number of recorded calls."""
        return self.n_calls

    def count(self) -> None:
        """An operation is recorded."""
        self.n_calls += 1
        self.tx.effects.advanced()

    def is_atom(self, kind: type) -> bool:
        """Dtypes, devices and the like are atoms."""
        return kind in ATOM_TYPES or distributed_tensors.is_placement(kind)

    def sequence_class(self, cls: Any, other: Any) -> Any:
        """Parts and sums of sizes are what the installed torch makes of them."""
        if torch.Size not in (cls, other):
            return tuple
        empty = torch.Size(()) if cls is torch.Size else ()
        rest: Any = torch.Size(()) if other is torch.Size else ()
        return type(empty[:]) if other is None else type(empty + rest)

    # -- values --------------------------------------------------------------------------------------------------

    def wrap(self, tx: Tracer, value: Any, source: Source | None) -> Value | None:
        """Model tensors and sizes."""
        kind = type(value)
        if kind is torch.Size:
            if source is not None:
                tx.guards.add(ConstantGuard, source, value)
            return Tuple([self.sizes.model(size) for size in value], torch.Size)
        if kind in contexts.AUTOCASTS:
            return contexts.existing_autocast(self, tx, value, source)
        if kind is torch.inference_mode:
            return inference.existing_inference(tx, value, source)
        if kind is torch.Generator:
            return generators.existing_generator(self, tx, value, source)
        if kind in SYMBOLIC:
            if kind is torch.SymInt and value.node.is_nested_int():
                raise Break(
                    "tracer.tensor_value", "the size of a nested tensor that differs from row to row is asked for"
                )
            return self.sizes.model(value)
        if not issubclass(kind, torch.Tensor):
            if source is not None and issubclass(kind, torch.nn.Module):
                self.sizes.modules[id(source)] = source
            getter = overriding.getter_of_property(value)
            return wrap_numpy(tx, value, source) if getter is None else getter
        if self.modes_active or not is_traced(value):
            return None
        if source is not None:
            tx.guards.add(TypeGuard, source, kind)
            if kind not in PLAIN:
                tx.classes.note(kind, tx.sources.type_of(source))
        self.state.functions.possible |= overriding.has_own_handler(kind)
        return TensorValue(self, None, None, value, source)

    def foreign(self, value: Any) -> Foreign | None:
        """Say what is special about a tensor that isn't traced."""
        if issubclass(type(value), torch.Tensor):
            return Foreign("tracer.tensor_input", special(value, self.modes_active))
        return foreign_of_numpy(value)

    def array_maker(self) -> Any:
        """Tensors on the memory of arrays are torch's."""
        return torch.from_numpy

    def rely_on_made_class(self, tx: Tracer, cls: type, source: Source) -> bool:
        """Layers with parametrized weights have a class each."""
        return rely_on_parametrized(tx, cls, source)

    def may_be_shadowed(self, cls: type, name: str) -> bool:
        """A module may have a `forward` of its own, a convolution a `_conv_forward`, an optimizer a `step`."""
        return cls.__module__.partition(".")[0] == "torch"

    def lift(self, value: TensorValue) -> None:
        """Make an input of the graph of an existing tensor; relies on its metadata."""
        real = value.real
        assert real is not None
        if is_wrapper(real):
            value.lifted(*subclasses.lift_parts(self, value))
            return
        if type(real) not in PLAIN:
            with apart(self.scopes), self.state.outside_inference():
                value.lifted(*function_subclasses.lift_plain(self, value))
            self.memory.note(value.fake, value)
            return
        with apart(self.scopes), self.state.outside_inference():
            fake = self.sizes.input(value, real)
        node = self._placeholder(value, fake)
        meta.set_given(node, real)
        self.memory.note(fake, value)
        value.lifted(node, fake)
        if value.source is not None:
            self.tx.guards.add(TensorGuard, value.source, facts_of(real, fake))

    def lift_number(self, value: SymbolicNumber) -> None:
        """Make an input of the graph of a number."""
        self._placeholder(value, value.number)

    def add_input(self, value: TensorValue, source: Source | None, fake: Any, given: Any = None) -> None:
        """Make an input of the graph of a tensor that is made for it, with what it holds now, where that is known."""
        node = self._placeholder(value, fake, source)
        if given is not None:
            meta.set_given(node, given)
        value.lifted(node, fake)

    def _placeholder(
        self, value: TensorValue | SymbolicNumber, fake: Any, source: Source | None = None
    ) -> torch.fx.Node:
        """Add an input, named after where it is found."""
        with self._at_inputs():
            node = self.graph.placeholder(readable_name(value.source or source))
        node.target = node.name  # the parameter's name: unique, as the node's is
        self.last_input = node
        origin = self.tx.frames.origin() or Origin("", 0, "")
        meta.set_value(node, fake)
        meta.set_origins(node, (Origin(origin.file, origin.line, origin.function, node.name),))
        self.inputs.append(value)
        self.sizes.bind(fake, node)
        return node

    def number(self, tx: Tracer, value: int | float | str, source: Source) -> Value | None:
        """Model a number or text that is no constant."""
        if not self.sizes.is_open(source, type(value)):
            return None
        if isinstance(value, str):
            return texts.given(tx, value, source)
        if type(value) is float:
            return floats.open_float(self, tx, value, source)
        if type(value) is int and value < 0:
            return floats.open_negative(self, tx, value, source)
        return self.sizes.number(value, source) if type(value) is int else None

    def facts(self) -> SizeFacts:
        """Return what was relied on about sizes."""
        return self.sizes.facts()

    def _at_inputs(self) -> Any:
        """Return the place after the last placeholder."""
        if self.last_input is not None:
            return self.graph.inserting_after(self.last_input)
        first = next(iter(self.graph.nodes), None)
        return self.graph.inserting_before(first)

    def fake_of(self, shell: torch.Tensor, device: torch.device) -> FakeTensor:
        """Return a fake tensor with the metadata of one on the meta device."""
        return FakeTensor(self.mode, shell, device)

    # -- recording -----------------------------------------------------------------------------------------------

    def record(self, tx: Tracer, kind: str, target: Any, args: Sequence[Value], keywords: Keywords) -> Value:
        """Run an operation on fake tensors and make a node of it; constant answers need no node."""
        if self.modes_active:
            if torch._C._are_functorch_transforms_active():
                raise Break("tracer.tensor_input", f"{shown(target)} is called inside of a torch.func transform")
            raise Break("tracer.tensor_op", "a mode changes what operations do")
        name = getattr(target, "__name__", target)
        args, keywords = with_numbers(tx, target, args, with_device(self, tx, target, keywords))
        found = generators.drawn(self, tx, kind, target, args, keywords)
        found = written_out(tx, kind, target, args, keywords) if found is None else found
        found = sized_by_known(self, tx, kind, target, args, keywords) if found is None else found
        if found is not None:
            return found
        if name.startswith(foreach.PREFIX):
            apart = foreach.taken_apart(self, tx, target, args, keywords)
            if apart is not None:
                return apart
        if target in floats.AVERAGED:
            averaged = floats.averaged(self, tx, kind, target, args, keywords)
            if averaged is not None:
                return averaged
        self._on_one_gpu(target, [value.place() for value in tensors_of([*args, *keywords.values()])])
        if floats.are_open(self, args, keywords):
            kind, target, args, keywords = floats.exchanged(self, tx, kind, target, args, keywords)
        scalars = scalars_of(target, args, keywords)
        try:
            fakes = [self.argument(a, True, scalar=a in scalars) for a in args]
            fake_named = {k: self.argument(v, True, scalar=v in scalars) for k, v in keywords.items()}
        except NotConstantError as unknown:
            raise Break("tracer.tensor_op", f"{shown(target)} is called with {unknown}") from None
        if name in PRODUCTS:
            refuse_mixed(target, [*fakes, *fake_named.values()])
        if name in RESHAPING and args and isinstance(args[0], TensorValue) and args[0].real is not None:
            raise Break("tracer.tensor_op", f"{shown(target)} changes the shape or strides of an existing tensor")
        if fake_named.get("out") is not None:
            self._refuse_resizing(kind, target, fakes, fake_named)
        if str(name).partition(".")[0].startswith(QUANTISING) and is_of_torch(target):
            raise Break("tracer.tensor_op", f"{shown(target)} gives a quantized tensor")
        distributed.refuse_exchange(self, target, [*fakes, *fake_named.values()])
        distributed_tensors.refuse_repeated(self, [*fakes, *fake_named.values()])
        nested.refuse_repeated(self, [*fakes, *fake_named.values()])
        refuse_call(target, fakes, fake_named)
        result = run_apart(self, self.memory, kind, target, fakes, fake_named)
        inference.refuse_writes(self)
        for leaf in tensors_in(result):
            if not is_jagged(leaf) and (leaf.layout is not torch.strided or leaf.is_nested or leaf.is_quantized):
                raise Break("tracer.tensor_op", f"{shown(target)} gives {special(leaf, self.modes_active)}")
        refuse_sparse_gradients(shown(target), list(tensors_in(result)), tensors_of([*args, *keywords.values()]))
        if not needs_node(result, args, keywords):
            return tx.live.from_python(result)
        refuse_effects_of_backward(
            self, shown(target), list(tensors_in(result)), list(tensors_in([*fakes, *fake_named.values()]))
        )
        self.gpu = self._on_one_gpu(target, [leaf.device for leaf in tensors_in(result)])
        data_sizes.check_what_was_assumed(self)
        # only now: a number that the operation asked for has become a constant
        try:
            nodes = tuple([spelled(self.argument(a, False, scalar=a in scalars)) for a in args])
            named = {k: spelled(self.argument(v, False, scalar=v in scalars)) for k, v in keywords.items()}
        except NotConstantError as unknown:
            raise Break("tracer.tensor_op", f"{shown(target)} is called with {unknown}") from None
        named |= dtype_to_name(self, target, result, [*fakes, *fake_named.values()])
        node = self.scopes.graph.create_node(kind, target, nodes, named)
        self.count()
        self.describe(node, result)
        found = self.result(tx, node, result, [*args, *keywords.values()])
        data_sizes.bind_sizes(self, found)
        return found

    def _on_one_gpu(self, target: Any, devices: Sequence[torch.device | None]) -> torch.device | None:
        """Return the GPU of the graph with an operation on these devices; break where it would have two."""
        found = {device for device in (self.gpu, *devices) if device is not None and device.type != "cpu"}
        if len(found) > 1:
            raise Break("tracer.device", f"{shown(target)} is between {' and '.join(sorted(map(str, found)))}")
        return next(iter(found), None)

    def _refuse_resizing(self, kind: str, target: Any, args: Sequence[Any], keywords: dict[str, Any]) -> None:
        """Break before an operation gives a tensor it writes another size, or stores what isn't of its type.

        What was traced took the old size, and whether eager casts depends on the operation.
        """
        rest = {k: v for k, v in keywords.items() if k != "out"}
        results = tensors_in(self.propagate(kind, target, args, rest))
        for result, out in zip(results, tensors_in(keywords["out"]), strict=False):
            if result.shape != out.shape:
                reason = f"{shown(target)} would resize its out= from {tuple(out.shape)} to {tuple(result.shape)}"
                raise Break("tracer.tensor_op", reason)
            if result.dtype != out.dtype:
                raise Break("tracer.tensor_op", f"{shown(target)} stores {result.dtype} in an out= of {out.dtype}")

    def propagate(self, kind: str, target: Any, args: Sequence[Any], keywords: dict[str, Any]) -> Any:
        """Run an operation on fake tensors; what it refuses, breaks."""
        function = target
        if kind == "call_method":  # of a subclass the graph calls what its class has under the name
            function = getattr(type(args[0]) if is_wrapper(args[0]) else torch.Tensor, target)
        heard = subclasses.heard(self, [*args, *keywords.values()])
        try:
            with self.mode, heard:
                return self.sizes.run(function, args, keywords)
        except (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode) as error:
            if isinstance(error, DynamicOutputShapeException):
                self.sizes.need_env()
            raise Break(
                "tracer.data_dependent", f"{shown(target)} gives a result that depends on data ({error})"
            ) from None
        except UnsupportedOperatorException as error:
            refuse_without_fake(target)
            raise Break("tracer.tensor_op", f"{shown(target)} can't be run on fake tensors ({error})") from None
        except UnsupportedError as error:  # eager doesn't raise it, so that nothing is gained by trying
            raise Break("tracer.tensor_op", f"{shown(target)}: {error.explanation}") from None
        except RecursionError:
            raise  # the evaluator's own frames take a share of the stack
        except Exception as error:  # whatever eager raises, it raises at the break
            refuse_raised(target, error)
            reason = f"{shown(target)} raised {type(error).__name__} while tracing: {error}"
            raise Break("tracer.operation_raised", reason) from None

    def describe(self, node: torch.fx.Node, result: Any) -> None:
        """Set the value and origin of a node."""
        meta.set_value(node, result)
        if self.region is not None:
            meta.set_region(node, *self.region)
        origin = self.tx.frames.origin()
        if origin is not None:
            meta.set_origins(node, (Origin(origin.file, origin.line, origin.function, node.name),))

    def result(self, tx: Tracer, node: torch.fx.Node, value: Any, inputs: Sequence[Value]) -> Value:
        """Model what a node gives; a tensor that was passed in is that very tensor."""
        if isinstance(value, torch.Tensor):
            for given in inputs:
                if isinstance(given, TensorValue) and given.fake is value:
                    if given.node.graph is node.graph:
                        given.follow(node)
                    return given
            return TensorValue(self, node, value)
        if isinstance(value, (tuple, list)) and any(isinstance(item, (torch.Tensor, tuple, list)) for item in value):
            items = [self._item(tx, node, index, item, inputs) for index, item in enumerate(value)]
            return List(items) if isinstance(value, list) else Tuple(items, type(value))
        return tx.live.from_python(value)

    def _item(self, tx: Tracer, node: torch.fx.Node, index: int, value: Any, inputs: Sequence[Value]) -> Value:
        """Model one item of a node that gives several."""
        if not isinstance(value, (torch.Tensor, tuple, list)):
            return tx.live.from_python(value)
        part = self.scopes.graph.call_function(operator.getitem, (node, index))
        self.describe(part, value)
        return self.result(tx, part, value, inputs)

    item = item_of
    set_item = set_item_of
    narrow = narrowed
    replace_data = replaced
    settle = settle_all

    def argument(self, value: Value, fake: bool, *, scalar: bool = False) -> Any:
        """Return an argument for a node, or for running on fake tensors; a `scalar` is no size, index or the like."""
        if isinstance(value, TensorValue):
            return value.fake if fake else self.scopes.here(value.node)
        value = value.number if isinstance(value, ProductOfSizes) else value
        if isinstance(value, Const):
            return value.value
        if isinstance(value, SymbolicNumber) and value.type() is bool:
            return value.as_python()  # a fact: operations take no open bools
        if isinstance(value, SymbolicNumber):
            if not scalar:
                self.sizes.is_size(value.number)
            return value.number if fake else self.scopes.here(self.sizes.node(value, self.tx.frames.origin()))
        if isinstance(value, Items):
            items = [self.argument(item, fake) for item in value.items]
            if value.type() is list:
                return items
            if isinstance(value, List):
                raise NotConstantError(value.describe())
            if value.type() in (tuple, torch.Size):
                return tuple(items)
            return value.type()._make(items) if hasattr(value.type(), "_make") else tuple(items)
        if isinstance(value, Slice):
            return slice(*[self.argument(part, fake) for part in value.parts])
        if isinstance(value, Dict) and value.cls is dict:
            return {k.as_python(): self.argument(v, fake) for k, v in dict_store.entries(self.tx, value).values()}
        if isinstance(value, OpenNumber):
            return self.argument(settled(self.tx, value), fake)
        return plain_number(value).as_python()

    # -- calls ---------------------------------------------------------------------------------------------------

    def call(self, tx: Tracer, function: Any, args: Sequence[Value], keywords: Keywords) -> Value | None:
        """Take over calls of torch's and numpy's built-in functions and classes."""
        found = stand_in_for(tx, function, args, keywords)
        if found is None:
            found = overriding.property_called(tx, function, args)
        if found is None:
            found = overriding.called(self, tx, function, args, keywords)
        if found is None and isinstance(function, type):
            found = subclasses.made_inside(self, tx, function, args, keywords)
        if found is None:
            found = call_leaf_or_table(self, tx, function, args, keywords)
        return call_numpy(tx, function, args, keywords) if found is None else found

    def call_function(
        self, tx: Tracer, function: PythonFunction, args: Sequence[Value], keywords: Keywords
    ) -> Value | None:
        """Take over calls of torch's Python functions; those that aren't evaluated break."""
        if not isinstance(function, Function):
            return None
        known = call_marked_function(self, tx, function, args, keywords)
        known = transforms.call_wrapper(tx, function, args, keywords) if known is None else known
        if known is not None:
            return known
        applied = applied_class(function.value, args)
        if applied is not None:
            return apply_function(self, tx, applied, args[1:], keywords)
        module = function.value.__module__ or ""
        if is_of_compiler(module):
            return call_of_compiler(self, tx, function, args, keywords)
        if module != "torch" and not module.startswith("torch."):
            return call_numpy(tx, function.value, args, keywords)
        if overriding.is_evaluated(self, tx, function.value, args, keywords):
            return None
        found = call_leaf_or_table(self, tx, function.value, args, keywords)
        if found is None:
            found = fully_sharded.call_hook(self, tx, function.value, args, keywords)
        if found is None:
            found = optimizers.call_step(tx, function.value, args, keywords)
        if found is None:
            found = scans.call_scan(self, tx, function.value, args, keywords)
        if found is None:
            found = call_unrolled(self, tx, function.value, args, keywords)
        if found is None:
            found = call_flex(tx, function.value, args, keywords)
        evaluated = (is_inlined(module), *(m.is_evaluated(function.value) for m in (distributed_tensors, messages)))
        if found is None and not any(evaluated):
            wrapped = modules.unpatched(function.value)
            if wrapped is not None:
                return do.call(tx, tx.live.wrap(wrapped, None), args, keywords)
            raise Break("tracer.call", f"{function.describe()} isn't evaluated")
        return found

    def class_method(self, function: Any) -> Any:
        """Return `apply` of autograd functions, where that is written in C."""
        return applied_in_c(function)

    def call_class_method(
        self, tx: Tracer, owner: ClassValue, name: str, args: Sequence[Value], keywords: Keywords
    ) -> Value | None:
        """Apply a user's autograd function, where `apply` is written in C."""
        applies = name == "apply" and issubclass(owner.value, torch.autograd.Function)
        return apply_function(self, tx, owner, args, keywords) if applies else None

    def call_object(self, tx: Tracer, callee: Object, args: Sequence[Value], keywords: Keywords) -> Value | None:
        """Call a module, or an operator object."""
        operator_object = operator_of(callee.value)
        if callee.existing and is_leaf(operator_object):
            if callee.source is not None:
                tx.guards.add(IdentityGuard, callee.source, callee.value)
            asked = overriding.called(self, tx, operator_object, args, keywords)
            if asked is not None:
                return asked
            wait = distributed.wait_of(operator_object)
            if wait is not None:
                return cast(Value, wait(self, tx, args, keywords))
            return self.record(tx, "call_function", operator_object, args, keywords)
        if issubclass(type(callee.value), torch._C.ScriptFunction):  # torch's test tools give it another `__call__`
            return call_marked_object(tx, callee, args, keywords)
        if is_of_compiler(type(callee.value).__module__):
            return call_compiler_object(tx, callee, args, keywords)
        modules.refuse_scripted(callee)
        return modules.call_module(self, tx, callee, args, keywords)

    def call_atom_method(self, tx: Tracer, atom: Any, name: str) -> Value | None:
        """Enter and leave devices."""
        return call_device_method(self, tx, atom, name) if isinstance(atom, torch.device) else None

    def call_marked(self, tx: Tracer, callee: Object, args: Sequence[Value], keywords: Keywords) -> Value | None:
        """Call what a compiler made of a function."""
        return call_marked_object(tx, callee, args, keywords)

    def attribute(self, tx: Tracer, owner: Object, name: str) -> Value | None:
        """Read what a module registers, or the name of a process group."""
        found = modules.module_attribute(tx, owner, name)
        return distributed.group_attribute(tx, owner, name) if found is None else found

    def set_attribute(self, tx: Tracer, owner: Object, name: str, value: Value | None) -> bool:
        """Set a plain attribute of a module."""
        return modules.set_module_attribute(tx, owner, name, value)

    def is_instance(self, tx: Tracer, value: Value, cls: Any) -> bool | None:
        """Answer for `torch.FloatTensor` and the like, which ask for dtype, layout and device."""
        if type(cls) is not _LEGACY:
            return None
        return isinstance(value, TensorValue) and isinstance(value.fake, cls)

    # -- the end -------------------------------------------------------------------------------------------------

    def is_result(self, value: Value) -> bool:
        """Tell whether the graph gives the value."""
        if not isinstance(value, TensorValue) or not value.recorded or is_wrapper(value.fake):
            return False
        return self.scopes.may_give(value.node)

    def wrapper(self, value: Value) -> tuple[Callable[..., Any], Sequence[Value]] | None:
        """What is made in inference mode becomes an inference tensor; a leaf shows what was computed."""
        if not isinstance(value, TensorValue):
            return None
        made: tuple[Callable[..., Any], Sequence[Value]] | None = self.leaves.wrapper(value)
        if inference.becomes_inference_tensor(self, value):
            made = inference.as_inference_tensor, ()
        shown = function_subclasses.wrapper_of(value, made)
        return made if shown is None else shown

    def runs_in_vain(self) -> InVain | None:
        """Return how to call the graph; None where it writes what exists, or leaves a mode of torch changed."""
        inputs = [meta.value(node) for node in self.graph.nodes if node.op == "placeholder"]
        written = any(self.sizes.mode.has_written(x) for x in inputs if isinstance(x, torch.Tensor))
        if written or self.state.is_changed() or calls_out(self.graph):
            return None
        return DRAWN_IN_VAIN if self.sizes.mode.draws else InVain(None, passed)

    def before_end(self, tx: Tracer) -> None:
        """Wait for what the graph has begun."""
        distributed.finish_begun(self, tx)

    def finish(self, tx: Tracer, results: Sequence[Value]) -> Graph | None:
        """Close the graph."""
        if not self.n_calls:
            return None
        for node in self.state.closing_nodes(self.graph):
            self.describe(node, None)
        outputs = [v for v in results if isinstance(v, TensorValue) and self.scopes.may_give(v.node)]
        nodes = self.leaves.supply(outputs, self.inputs)
        subclass_gradients.link(self, outputs)
        self.graph.output(tuple(nodes))
        module = torch.fx.GraphModule(torch.nn.Module(), self.graph)
        self._order_inputs()
        specs = tuple(self._spec(value) for value in self.inputs)
        fakes = list(map(meta.value, nodes))
        fresh = tuple(
            Fresh(index, tuple(map(plain_size, fake.stride())), fake.requires_grad) for index, fake in enumerate(fakes)
        )
        signature = Signature(specs, fresh, exit_grad_mode=self.state.exit_grad_mode())
        examples = tuple(self.placeholders[value] for value in self.inputs)
        self.state.add_guards(tx.guards)
        return Graph(module, signature, examples, self.inputs, outputs)

    def _order_inputs(self) -> None:
        """Note the value of each placeholder."""
        nodes = [node for node in self.graph.nodes if node.op == "placeholder"]
        self.placeholders = {value: meta.value(node) for value, node in zip(self.inputs, nodes, strict=True)}
        self.input_names = {value: node.name for value, node in zip(self.inputs, nodes, strict=True)}

    def _spec(self, value: TensorValue | SymbolicNumber) -> InputSpec:
        """Describe an input."""
        if isinstance(value, SymbolicNumber):
            return InputSpec(self.input_names[value], Role.SIZE, value.source)
        if isinstance(value, _MADE_INPUTS):
            return InputSpec(self.input_names[value], value.role, requires_grad=value.fake.requires_grad)
        role = Role.BUFFER if "_buffers" in str(value.source) else Role.USER
        role = Role.PARAMETER if isinstance(value.real, torch.nn.Parameter) else role
        assert value.real is not None
        given = self.leaves.given.get(value)
        graded = value.real.requires_grad if given is None else given.graded
        return InputSpec(self.input_names[value], role, value.source, graded)


_MADE_INPUTS = (
    floats.NumberInput,
    function_subclasses.PlainView,
    generators.DrawnTensor,
    MadeLeaf,
    nested.Viewed,
    subclass_gradients.Carrier,
)


@codegen.emit_ambient.rule(Tensors)
def emit_ambient(out: Builder, extension: Tensors) -> None:
    """Set the grad mode and autocast state that tracing left."""
    extension.state.emit(out)
