"""`joint_graph`: FX(torch) -> FX(aten, effects) of the program and of its gradients, in one graph.

Eager's own autograd runs under the recorder: what it computes is what is recorded. Terms:
  root       a tensor that the caller gets a gradient through: an output of its own storage, the storage that several
             outputs view, or the new contents of an input that the program writes where gradients are tracked
  tangent    the gradient of a root; an input of the joint graph
  kept       a value whose memory autograd's formulas hold on to between forward and backward

Outputs that are inputs, or views of them, have no tangent: the caller gets the view from the tensor that it passed,
and eager's autograd goes on from there. That is only right where the view is one of autograd's own: one that an
autograd function of the user's gives, with gradients of its own, is copied.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._prims_common import make_contiguous_strides_for
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd.graph import GradientEdge, get_gradient_edge, saved_tensors_hooks
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch

from intarsia_autodiff.decompositions import backward_decompositions
from intarsia_autodiff.layouts import correct_layouts
from intarsia_autodiff.parts import Part, independent_parts, is_slice_write, nodes_behind, saved_by
from intarsia_ir import aten as aten_dialect
from intarsia_ir import meta
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.records import Joint, Signature, Tangent
from intarsia_ir.values import Recorded
from intarsia_recorder import Decompositions, Recorder, record, snapshot

__all__ = ["joint_graph"]


def joint_graph(
    gm: fx.GraphModule | Callable[..., Any],
    inputs: Sequence[Any],
    *,
    decompositions: Decompositions | None = None,
    fake_mode: FakeTensorMode | None = None,
    signature: Signature | None = None,
    fuel: int | None = None,
) -> Recorded:
    """Return FX(aten, effects) that computes a program's outputs and, from tangents, gradients of its inputs.

    Its inputs are those of the program and then one tangent for each root; its outputs are those of the program and
    then one gradient for each input that requires grad. `signature.joint` says which is which; it's None, and there
    is nothing more, when no output requires grad. The program runs under the caller's grad mode.

    Args:
        gm: FX(torch), or a callable that takes `inputs` as positional arguments.
        inputs: Real or fake tensors and numbers, one per placeholder.
        decompositions: ATen overload -> Python function to record in its place; None: `backward_decompositions()`.
        fake_mode: Mode of the fake tensors; by default that of the inputs, or a new one with static sizes.
        signature: Names, roles and sources of the inputs.
        fuel: How many calls are decomposed, in program order; the rest stay whole. None: all.

    Raises:
        InvalidArgumentError: The inputs don't fit the program.
        UnsupportedError: The program, or its backward pass, can't be recorded.

    Example:
        >>> x = torch.zeros(3, requires_grad=True)
        >>> joint = joint_graph(torch.sin, (x,))
        >>> [str(n.target) for n in joint.graph_module.graph.nodes if n.op == "call_function"]
        ['aten.sin.default', 'aten.detach.default', 'aten.cos.default', 'aten.mul.Tensor']
        >>> joint.signature.joint.tangents, joint.signature.joint.gradients
        ((Tangent(position=0, of_write=False),), (0,))
    """
    table = backward_decompositions() if decompositions is None else decompositions
    if signature is not None and signature.inputs and len(signature.inputs) == len(inputs):
        inputs = [_pristine(x, spec.requires_grad) for x, spec in zip(inputs, signature.inputs, strict=True)]
    passes: list[_Backward] = []

    @contextlib.contextmanager
    def around(recorder: Recorder, fakes: Sequence[Any]) -> Iterator[Callable[[Sequence[Any]], Sequence[Any]]]:
        passes.append(_Backward(recorder, fakes))
        with passes[0].noting_what_is_kept(), _LibraryCalls():
            yield passes[0].proceed

    how: dict[str, Any] = {"decompositions": table, "fake_mode": fake_mode, "fuel": fuel}
    done = record(gm, inputs, signature=signature, around=around, **how)
    return dataclasses.replace(done, signature=dataclasses.replace(done.signature, joint=passes[0].joint))


# the nodes that autograd makes for views: each gives the gradient of its operand from that of the view
_VIEW = re.compile(
    r"(Alias|AsStrided|Diagonal|Expand|Permute|ReshapeAlias|Select|Slice|Split|SplitWithSizes|Squeeze|T|Transpose|"
    r"Unbind|Unfold|UnsafeSplit|UnsafeSplitWithSizes|Unsqueeze|View|ViewAsReal|ViewAsComplex|Conj|NegView|Real|Imag)Backward\d*"
)


def _pristine(value: Any, requires_grad: bool) -> Any:
    """Return a fake input as it was before a front end ran the program on it; it isn't a leaf, so it may be written."""
    if not isinstance(value, FakeTensor) or not (requires_grad or value.requires_grad):
        return value
    plain = snapshot(value.fake_mode, value)
    with torch.enable_grad():
        return _NotALeaf.apply(plain.requires_grad_()) if requires_grad else plain  # type: ignore[no-untyped-call]


class _NotALeaf(torch.autograd.Function):
    """The identity; its result is no view, which in-place operations would mind."""

    @staticmethod
    def forward(ctx: Any, x: FakeTensor) -> FakeTensor:
        return snapshot(x.fake_mode, x)


class _LibraryCalls(TorchFunctionMode):
    """Runs an LSTM step by step: the library's kernel keeps a workspace whose size only the library knows."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in _STEP_BY_STEP:
            return func(*args, **(kwargs or {}))
        enabled = torch._C._get_mkldnn_enabled()
        torch._C._set_mkldnn_enabled(False)
        try:
            return func(*args, **(kwargs or {}))
        finally:
            torch._C._set_mkldnn_enabled(enabled)


_STEP_BY_STEP = frozenset({torch.lstm})


_BY_STRIDES = frozenset(
    {torch.ops.aten.as_strided.default, torch.ops.aten.as_strided_copy.default, torch.ops.aten.as_strided_.default}
)


_FREED = "Trying to backward through the graph a second time"


def _is_of_nested_tensors(error: BaseException) -> bool:
    """Tell whether torch's own code for nested tensors raised an error, as it does in eager."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__"))
    return module.startswith("torch.nested._internal.")


class _WrittenError(RuntimeError):
    """A tensor that autograd keeps was written."""


class _Backward:
    """Goes on after the program: chooses roots, adds tangents, runs autograd."""

    def __init__(self, recorder: Recorder, inputs: Sequence[Any]) -> None:
        self.recorder, self.inputs = recorder, list(inputs)
        self.joint: Joint | None = None
        tensors = [(n, x) for n, x in enumerate(inputs) if isinstance(x, torch.Tensor)]
        # before the program runs: an input that is written in place is another function of itself afterwards
        self.edges: dict[int, Any] = {
            n: x if x.is_leaf else get_gradient_edge(x) for n, x in tensors if x.requires_grad
        }
        self.storages = {_storage(x): n for n, x in reversed(tensors)}
        self.kept: set[int] = set()
        self.raises: list[str] = []

    @contextlib.contextmanager
    def noting_what_is_kept(self) -> Iterator[None]:
        """Note which memory autograd keeps, and check as it does that nobody writes it meanwhile."""

        def pack(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
            self.kept.add(_storage(tensor))
            return tensor, tensor._version

        def unpack(packed: tuple[torch.Tensor, int]) -> torch.Tensor:
            tensor, version = packed
            if tensor._version != version:
                raise _WrittenError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation: "
                    f"[{tensor.dtype} {list(tensor.shape)}] is at version {tensor._version}; "
                    f"expected version {version} instead."
                )
            return tensor

        with saved_tensors_hooks(pack, unpack):
            yield

    def proceed(self, outputs: Sequence[Any]) -> list[Any]:
        """Return the outputs to give: those of the program, and the gradients."""
        outputs = list(outputs)
        self._refuse_layouts(outputs)
        tangents, roots = self._roots(outputs)
        for value in outputs:
            if isinstance(value, FakeTensor):
                self.recorder.argument(value)  # a result of an op with several gets its node now, to be marked
        if not roots:
            return outputs
        if not self.edges:
            raise UnsupportedError(
                "an output requires grad, and no input does", code="training.no_inputs", where=self.recorder.where or ()
            )
        self._mark_what_is_kept()
        ends = {edge.node for edge in self.edges.values() if isinstance(edge, GradientEdge)}
        with no_dispatch():  # looking at what is saved is no part of the program
            parts = independent_parts(roots, ends)
            watched = tuple(self._watched(part, outputs) for part in parts)
            frees = tuple(map(_frees, parts))
        self._refuse_used_leaves(outputs, roots, ends)
        behind = {node for root in roots for node in nodes_behind(root, ends)}
        self._refuse_absolute_offsets(behind)
        correct_layouts(behind)
        order = [number for part in parts for number in part.roots]
        gradients = self._differentiate([[roots[number] for number in part.roots] for part in parts])
        self._refuse_late_writes(outputs)
        several = len(parts) > 1
        self.joint = Joint(
            tuple(tangents[number] for number in order),
            tuple(position for part in gradients for position in part),
            len(outputs),
            tuple((len(p.roots), len(g)) for p, g in zip(parts, gradients, strict=True)) if several else (),
            watched,
            tuple(self.raises),
            frees,
        )
        return [*outputs, *[gradient for part in gradients for gradient in part.values()]]

    def _refuse_layouts(self, outputs: Sequence[Any]) -> None:
        """Refuse outputs without strides: nothing says what their tangents look like."""
        for value in outputs:
            if isinstance(value, FakeTensor) and value.layout is not torch.strided:
                raise UnsupportedError(
                    f"an output has the layout {value.layout}", code="training.layout", where=self.recorder.where or ()
                )

    def _watched(self, part: Part, outputs: Sequence[Any]) -> tuple[tuple[int, bool], ...]:
        """Return the inputs and outputs whose memory eager keeps for a part."""
        kept = {_storage(tensor) for tensor in saved_by(part.holding)}
        inputs = [(n, True) for storage, n in self.storages.items() if storage in kept]
        fakes = [(n, value) for n, value in enumerate(outputs) if isinstance(value, FakeTensor)]
        shown = [(n, False) for n, x in fakes if _storage(x) in kept and _storage(x) not in self.storages]
        return (*sorted(inputs), *shown)

    def _refuse_late_writes(self, outputs: Sequence[Any]) -> None:
        """Refuse a backward pass that writes what others have: each time it runs, it would have to do so again."""
        others = {_storage(x) for x in [*self.inputs, *outputs] if isinstance(x, FakeTensor)}
        for node in self.recorder.graph.nodes:
            if node.op == "call_function" and meta.phase(node) == "backward":
                for written in aten_dialect.written_nodes(node):
                    value = meta.value(written)
                    if isinstance(value, FakeTensor) and _storage(value) in others:
                        raise UnsupportedError(
                            "the backward pass of the program writes a tensor that isn't its own",
                            code="training.late_write",
                            where=meta.origins(node),
                        )

    # ---- roots

    def _roots(self, outputs: list[Any]) -> tuple[list[Tangent], list[torch.Tensor]]:
        """Return the roots and what each is; outputs that can't be told by a view are replaced by copies."""
        roots: dict[int, tuple[Tangent, torch.Tensor]] = {}
        sharing = self._sharing(outputs)
        for position, value in enumerate(outputs):
            if not isinstance(value, FakeTensor) or not value.requires_grad:
                continue
            source = self.storages.get(_storage(value))
            if not _tells_its_node(value):
                raise self._refused("a view that was made and written without gradients is returned", "training.leaf")
            if value.is_leaf:
                root = self._base_of_leaf(value, is_of_input=source is not None)
                if root is not None:
                    roots.setdefault(id(root), (Tangent(position), root))
                continue
            if source is not None:
                if not _is_view_of(value, self.inputs[source]):
                    self._refuse_view_of_leaf(value)
                    outputs[position] = value = value.clone()
                    roots[id(value)] = Tangent(position), value
                continue
            root = self._root(value, sharing)
            if root is None:
                outputs[position] = value = _copied(value)
                root = value if value._base is None else value._base
            roots.setdefault(id(root), (Tangent(position), root))
        for position, value in enumerate(self.inputs):
            if self._is_written(position):
                roots[id(value)] = Tangent(position, of_write=True), value
        return [tangent for tangent, _ in roots.values()], [root for _, root in roots.values()]

    def _base_of_leaf(self, output: torch.Tensor, *, is_of_input: bool) -> torch.Tensor | None:
        """Return what an output without a history that requires grad is a view of; None where no tangent belongs to it.

        It's a view that was made where gradients were off: it requires grad because its base does.
        """
        base = output._base
        if base is None and not any(output is value for value in self.inputs):
            raise self._refused("a leaf that requires grad is made inside and returned", "training.leaf")
        return None if is_of_input or base is None else base

    def _refuse_view_of_leaf(self, output: torch.Tensor) -> None:
        """Refuse a view of a view that was made where gradients were off: its gradient would be that one's."""
        node: Any = output.grad_fn
        while node is not None and _VIEW.fullmatch(type(node).__name__):
            node = node.next_functions[0][0]
        if getattr(node, "variable", None) is not None:
            raise self._refused("a view that was made without gradients is used with gradients", "training.leaf")

    def _refuse_used_leaves(self, outputs: Sequence[Any], roots: Sequence[torch.Tensor], ends: Collection[Any]) -> None:
        """Refuse outputs that other outputs would pass gradients to: no node of ours leads there."""
        given = [x for x in outputs if isinstance(x, FakeTensor) and x.requires_grad and x.is_leaf]
        leaves = [x for x in given if not any(x is value for value in self.inputs)]
        if not leaves:
            return
        used = [getattr(node, "variable", None) for root in roots for node in nodes_behind(root, ends)]
        if any(leaf is value for leaf in leaves for value in used):
            raise self._refused("a view that was made without gradients is used with gradients", "training.leaf")

    def _refuse_absolute_offsets(self, behind: Collection[Any]) -> None:
        """Refuse gradients through `as_strided` of an input with an offset: it counts from the start of the storage.

        Where the input itself starts is known at run time only, and each start has another gradient.
        """
        if all(getattr(node, "_saved_storage_offset", None) is None for node in behind):
            return
        for node in self.recorder.graph.nodes:
            given = node.args[3] if len(node.args) > 3 else node.kwargs.get("storage_offset")
            if node.target in _BY_STRIDES and given is not None and _storage(meta.value(node.args[0])) in self.storages:
                raise UnsupportedError(
                    "a gradient goes through as_strided of an input with an offset of its storage",
                    code="training.as_strided",
                    where=meta.origins(node),
                    hints=("leave the offset out, which is the input's own then",),
                )

    def _refused(self, what: str, code: str) -> UnsupportedError:
        return UnsupportedError(what, code=code, where=self.recorder.where or ())

    def _sharing(self, outputs: Sequence[Any]) -> dict[int, int]:
        """Map the memory of outputs to the number of output objects that show it."""
        shown: dict[int, set[int]] = {}
        for value in outputs:
            if isinstance(value, FakeTensor):
                shown.setdefault(_storage(value), set()).add(id(value))
        return {storage: len(objects) for storage, objects in shown.items()}

    def _root(self, output: torch.Tensor, sharing: dict[int, int]) -> torch.Tensor | None:
        """Return what the tangent of an output in storage of its own belongs to; None: only a copy will do."""
        base, alone = output._base, sharing[_storage(output)] == 1
        if alone and _is_dense(output) and not (output.is_conj() or output.is_neg()):
            return output
        if base is None:
            return output if _fills_its_storage(output) else None
        return base if base.requires_grad and _is_view_of(output, base) else None

    def _is_written(self, position: int) -> bool:
        """Tell whether the program wrote the input where gradients were tracked."""
        value = self.inputs[position]
        if not isinstance(value, torch.Tensor) or not value.requires_grad:
            return False
        before = self.edges.get(position)
        return before is None or (before is not value and value.grad_fn is not before.node)

    # ---- the backward pass

    def _differentiate(self, parts: Sequence[Sequence[torch.Tensor]]) -> list[dict[int, Any]]:
        """Run autograd for each part; return the gradients by the inputs that they belong to.

        One part has a gradient, or None, for each input that requires grad; of several, each has those that it reaches.
        """
        numbers = itertools.count()
        tangents = [[self._tangent(root, next(numbers)) for root in part] for part in parts]
        self.recorder.phase, self.recorder.where, self.recorder.mark = "backward", None, None
        given = [
            [_through_bits(tangent, root) for tangent, root in zip(*both, strict=True)]
            for both in zip(tangents, parts, strict=True)
        ]
        gradients = [self._gradients(roots, of_roots) for roots, of_roots in zip(parts, given, strict=True)]
        if len(gradients) == 1:
            return gradients
        return [{n: gradient for n, gradient in part.items() if gradient is not None} for part in gradients]

    def _gradients(self, roots: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor]) -> dict[int, Any]:
        """Return the gradient of each input that requires grad; None where there is none."""
        self.raises.append("")
        try:
            # on this thread: autograd's own threads, one a device, would record side by side
            with torch.autograd.set_multithreading_enabled(False):
                gradients = torch.autograd.grad(roots, list(self.edges.values()), tangents, allow_unused=True)
        except _WrittenError as error:  # eager raises it as well, and only if it goes back from here
            self.raises[-1] = str(error)
            return dict.fromkeys(self.edges)
        except (RuntimeError, ValueError, TypeError) as error:
            # the program went back itself, and kept nothing; or nested tensors have no such gradient in eager either
            if str(error).startswith(_FREED) or _is_of_nested_tensors(error):
                self.raises[-1] = str(error)
                return dict.fromkeys(self.edges)
            raise UnsupportedError(
                f"the backward pass of the program can't be recorded: {error}", code="training.backward"
            ) from error
        for gradient in gradients:
            if gradient is not None and not isinstance(gradient, FakeTensor):
                raise UnsupportedError(
                    f"the gradient of an input is a {type(gradient).__qualname__}", code="training.subclass"
                )
        return dict(zip(self.edges, gradients, strict=True))

    def _tangent(self, root: torch.Tensor, number: int) -> torch.Tensor:
        """Add the tangent of a root, with its strides; where it has gaps or overlaps, row by row instead."""
        assert isinstance(root, FakeTensor)
        strides = root.stride() if _is_dense(root) else make_contiguous_strides_for(root.shape)
        with no_dispatch():
            raw = torch.empty_strided(root.shape, strides, dtype=root.dtype, device="meta")
            tangent = FakeTensor(self.recorder.fake_mode, raw, root.fake_device)
        self.recorder.placeholder(tangent, f"tangent{number}")
        return tangent

    def _mark_what_is_kept(self) -> None:
        for node in self.recorder.graph.nodes:
            value = meta.value(node) if meta.has_value(node) else None
            if isinstance(value, FakeTensor) and _storage(value) in self.kept:
                meta.set_kept(node)


def _copied(value: torch.Tensor) -> torch.Tensor:
    """Return a copy with the same strides; where these leave gaps it's a view of memory that has them."""
    if _is_dense(value) or 0 in value.stride():
        return value.clone()
    room = torch.empty(_reach(value), dtype=value.dtype, device=value.device)
    return room.as_strided(value.size(), value.stride()).copy_(value)


def _through_bits(tangent: torch.Tensor, root: torch.Tensor) -> torch.Tensor:
    """Return the tangent of a root with bits that no view gave it, as `dot` of two conjugates has one.

    The graph's result is its memory, of which the caller makes a view: the graph is given that one's tangent.
    """
    tangent = torch.conj(tangent) if root.is_conj() else tangent
    return torch._neg_view(tangent) if root.is_neg() else tangent


def _tells_its_node(view: torch.Tensor) -> bool:
    """Tell whether autograd knows the node of a view: not of one made without gradients, once that was written."""
    try:
        return view.grad_fn is not None or view.is_leaf
    except RuntimeError:
        return False


def _storage(value: torch.Tensor) -> int:
    address: int = value.untyped_storage()._cdata
    return address


def _fills_its_storage(value: torch.Tensor) -> bool:
    """Tell whether the storage of a tensor was made for it: parts that autograd takes for no views show another's."""
    size = 0 if value.numel() == 0 else _reach(value) * value.element_size()
    return bool(value.storage_offset() == 0 and size == value.untyped_storage().nbytes())


def _reach(value: torch.Tensor) -> Any:
    """Return how many elements of memory lie between the first and the last one of a tensor, both included."""
    return sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True)) + 1


def _is_view_of(view: torch.Tensor, base: torch.Tensor) -> bool:
    """Tell whether autograd goes from a view to its base through views alone."""
    if view is base:
        return True
    if not base.requires_grad:
        return False
    node: Any = view.grad_fn
    while node is not base.grad_fn:
        if node is not None and getattr(node, "variable", None) is base:
            return True  # where the gradient of a leaf is accumulated
        if node is None or not _VIEW.fullmatch(type(node).__name__):
            return False
        node = node.next_functions[0][0]
    return True


def _frees(part: Part) -> bool:
    """Tell whether going back from the roots of a part frees anything, so that eager raises the second time."""
    return any(map(is_slice_write, part.holding)) or any(True for _ in saved_by(part.holding))


def _is_dense(value: torch.Tensor) -> bool:
    """Tell whether the elements of a tensor fill one piece of memory, each once."""
    if any(isinstance(n, torch.SymInt) and not n.node.has_hint() for n in value.shape):
        return value.is_contiguous()  # whatever sizes only the running program knows
    expected: Any = 1
    dims = sorted((d for d in range(value.dim()) if value.size(d) != 1), key=value.stride)
    for dim in dims:
        if value.stride(dim) != expected:
            return False
        expected = expected * value.size(dim)
    return True
