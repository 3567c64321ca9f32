"""Kinds of break that come from torch, and from what compilers mark."""

from __future__ import annotations

__all__ = ["KINDS"]


#: Code -> summary and remedy.
KINDS: dict[str, tuple[str, str]] = {
    "tracer.array_input": (
        "a kind of array that isn't traced: a subclass, read-only, of another type or with negative strides",
        "make it a plain array of floats, ints or bools before, such as by numpy.ascontiguousarray",
    ),
    "tracer.array_warning": (
        "arithmetic of which numpy may warn, where that can't be told from a graph's results",
        "compute with tensors, or write to arrays and tensors outside of the compiled region",
    ),
    "tracer.collective": (
        "a call that exchanges data with other processes in a way that a graph can't hold",
        "use collectives of contiguous tensors without gradients, or torch.distributed._functional_collectives",
    ),
    "tracer.data_dependent": (
        "an operation whose result depends on the data of a tensor",
        "keep the result in a tensor, or compute it outside of the compiled region",
    ),
    "tracer.device": (
        "an operation between two GPUs: a graph has one",
        "nothing: each part is a graph of its own, and what carries tensors across runs in eager",
    ),
    "tracer.fake_raised": (
        "an operator of a library whose fake implementation raises",
        "see the reason: the fake implementation is given tensors without data, and possibly open sizes",
    ),
    "tracer.no_fake": (
        "an operator of a library that nothing tells what its results look like",
        "register a fake implementation of it: torch.library.register_fake",
    ),
    "tracer.numpy": (
        "something of numpy that has no torch form",
        "compute with tensors, or call it outside of the compiled region",
    ),
    "tracer.requested": ("the program asks for a break here", "remove the call of graph_break"),
    "tracer.shared_operands": (
        "an operator of a library that writes a tensor which shares elements with another of its operands",
        "pass a copy of one of them: what the operator reads depends on the order in which it writes",
    ),
    "tracer.tensor_branch": (
        "a branch on the value of a tensor",
        "use torch.where, or branch on sizes",
    ),
    "tracer.tensor_op": (
        "a tensor operation that isn't supported while tracing",
        "see the reason; the operation itself runs in eager",
    ),
    "tracer.tensor_input": (
        "a kind of tensor that isn't traced: sparse, quantized, nested, in a torch.func transform, of most subclasses",
        "convert it to a plain strided tensor before; give a transform of torch.func the function uncompiled",
    ),
    "tracer.tensor_value": (
        "the value of a tensor becomes a Python number",
        "keep the value in a tensor",
    ),
    "tracer.disabled": ("the function is marked as not to be compiled", "remove the mark, or call it outside"),
}
