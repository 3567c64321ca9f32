"""The pipeline in miniature: one file, no dependency but torch and g++, from bytecode to a kernel.

It does for rows of numbers what the packages do for everything: it captures a Python function, guards what it relied
on, turns operations into loop nests, fuses them, prints C++, builds and caches it, and recompiles when a guard fails.
What it can't do it leaves to eager. Run it: `python docs/from_scratch.py`.
"""

import builtins
import ctypes
import dis
import hashlib
import operator
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import torch

# ---- 1. capture: bytecode -> graph (packages: bytecode, pyeval, tensorcapture) ---------------------------------------


@dataclass(eq=False)
class Node:
    """An operation, or an input. Sizes are those of the call: a guard says so."""

    op: str
    args: tuple = ()
    shape: tuple = ()
    line: int = 0


class BreakError(Exception):
    """What can't be captured, and where."""


POINTWISE = {
    "add": ("({} + {})", 2), "sub": ("({} - {})", 2), "mul": ("({} * {})", 2), "truediv": ("({} / {})", 2),
    "exp": ("expf({})", 1), "sin": ("sinf({})", 1), "tanh": ("tanhf({})", 1), "relu": ("({0} < 0 ? 0 : {0})", 1),
}  # fmt: skip
REDUCE = {
    "sum": ("0.0f", "acc += {};"),
    "amax": ("-INFINITY", "{{ float v = {}; acc = v > acc || v != v ? v : acc; }}"),
}
LAST = {"dim": -1, "keepdim": True}
SYMBOLS = {"+": "add", "-": "sub", "*": "mul", "/": "truediv"}


@dataclass
class Graph:
    """What was captured.

    inputs: names of the tensors; nodes: operations in order; output: what is returned; guards: checks of a later call.
    """

    inputs: list = field(default_factory=list)
    nodes: list = field(default_factory=list)
    output: Node = None
    guards: list = field(default_factory=list)


def capture(function, args):
    """Evaluate the bytecode of a function, with nodes in the place of tensors."""
    code, graph, stack = function.__code__, Graph(), []
    known = {}
    if len(args) != code.co_argcount or code.co_kwonlyargcount or code.co_flags & 0x2AC:  # *args, a generator, ...
        raise BreakError("it isn't a plain function of so many arguments")
    for name, value in zip(code.co_varnames, args, strict=False):
        if isinstance(value, torch.Tensor):
            plain = value.dtype == torch.float32 and value.is_contiguous() and value.dim() == 2
            if not plain or value.requires_grad or value.device.type != "cpu":
                raise BreakError(f"{name} is no plain row-major matrix of float32")
            known[name] = Node("input", (name,), tuple(value.shape))
            graph.inputs.append(name)
            shape = tuple(value.shape)
            graph.guards.append((f"{name} is f32{list(shape)}", lambda a, n=name, s=shape: is_plain(a[n], s)))
        else:
            known[name] = value
            graph.guards.append(
                (f"{name} == {value!r}", lambda a, n=name, v=value: type(a[n]) is type(v) and a[n] == v)
            )
    names = ()
    for step in dis.get_instructions(code):
        line = step.positions.lineno if step.positions else 0
        match step.opname:
            case "RESUME" | "PRECALL" | "NOP" | "CACHE":
                pass
            case "PUSH_NULL":
                stack.append(None)
            case "LOAD_FAST" | "LOAD_FAST_CHECK" | "LOAD_FAST_BORROW":
                stack.append(known[step.argval])
            case "LOAD_FAST_LOAD_FAST" | "LOAD_FAST_BORROW_LOAD_FAST_BORROW":
                stack += [known[name] for name in step.argval]
            case "STORE_FAST":
                known[step.argval] = stack.pop()
            case "STORE_FAST_LOAD_FAST":
                known[step.argval[0]] = stack.pop()
                stack.append(known[step.argval[1]])
            case "STORE_FAST_STORE_FAST":
                for name in step.argval:
                    known[name] = stack.pop()
            case "LOAD_CONST" | "LOAD_SMALL_INT":
                stack.append(step.argval)
            case "LOAD_GLOBAL":
                value = function.__globals__.get(step.argval, getattr(builtins, step.argval, None))
                space = function.__globals__
                check = (f"globals[{step.argval!r}]", lambda a, n=step.argval, v=value, g=space: g.get(n, v) is v)
                graph.guards.append(check)
                if step.argrepr.startswith("NULL"):  # before 3.13, the empty slot of a call lies below
                    stack += [None, value]
                else:
                    stack.append(value)
                    stack += [None] if step.argrepr.endswith("NULL") else []
            case "LOAD_ATTR" | "LOAD_METHOD":
                owner, name = stack.pop(), step.argval
                is_method = step.opname == "LOAD_METHOD" or "NULL" in step.argrepr
                found = name if isinstance(owner, Node) else getattr(owner, name)
                held = (owner,) if isinstance(owner, Node) else ()
                if isinstance(owner, Node) and not is_method:
                    found, held = getattr(owner, name), ()
                stack += [(found, held), None] if is_method else [found]
            case "KW_NAMES":
                names = code.co_consts[step.arg]
            case "CALL" | "CALL_KW":
                names = stack.pop() if step.opname == "CALL_KW" else names
                given = [stack.pop() for _ in range(step.arg)][::-1]
                callee = next(x for x in (stack.pop(), stack.pop()) if x is not None)
                called, held = callee if isinstance(callee, tuple) else (callee, ())
                split = len(given) - len(names)
                keywords = dict(zip(names, given[split:], strict=True))
                stack.append(record(graph, called, [*held, *given[:split]], keywords, line))
                names = ()
            case "BINARY_OP":
                right, left = stack.pop(), stack.pop()
                if not isinstance(left, Node) and not isinstance(right, Node):
                    stack.append(getattr(operator, SYMBOLS[step.argrepr])(left, right))
                else:
                    stack.append(record(graph, SYMBOLS.get(step.argrepr, step.argrepr), [left, right], {}, line))
            case "RETURN_VALUE":
                graph.output = stack.pop()
                if not isinstance(graph.output, Node) or graph.output.op == "input":
                    raise BreakError(f"line {line}: what is returned isn't computed here")
                return graph
            case other:
                raise BreakError(f"line {line}: no rule for {other}")
    raise BreakError("the function doesn't return")


def is_plain(value, shape):
    """Tell whether a tensor is as a graph relied on it."""
    kind = isinstance(value, torch.Tensor) and value.dtype == torch.float32 and not value.requires_grad
    return kind and tuple(value.shape) == shape and value.is_contiguous() and value.device.type == "cpu"


def record(graph, called, args, keywords, line):
    """Add an operation to the graph: a method or operator by its name, or a function of torch's."""
    name = called if isinstance(called, str) else getattr(called, "__name__", "")
    if not isinstance(called, str) and getattr(torch, name, None) is not called:
        raise BreakError(f"line {line}: {name or called} isn't an operation")
    if not all(isinstance(x, (Node, int, float)) for x in args):
        raise BreakError(f"line {line}: an operand of {name} is no tensor and no number")
    shapes = [x.shape for x in args if isinstance(x, Node)]
    if name in POINTWISE and len(args) == POINTWISE[name][1] and not keywords:
        shape = tuple(torch.broadcast_shapes(*shapes))
        if len(shape) == 2 and any(s[0] != shape[0] for s in shapes):
            raise BreakError(f"line {line}: {name} broadcasts rows")
    elif name in REDUCE and {**dict(zip(("dim", "keepdim"), args[1:], strict=False)), **keywords} == LAST:
        args, shape = args[:1], (shapes[0][0], 1)
    else:
        raise BreakError(f"line {line}: no rule for {name}")
    graph.nodes.append(Node(name, tuple(args), shape, line))
    return graph.nodes[-1]


# ---- 2. lowering: operations -> loop nests (packages: functionalizer, rewrites, lowering) ----------------------------


@dataclass(eq=False)
class Nest:
    """For each row: a map over columns, or a reduction of them. `body` is text with {node} for what is read."""

    node: Node
    kind: str
    body: str
    reads: tuple


def lower(graph):
    """One nest an operation; nothing is shared yet."""
    nests = []
    for node in graph.nodes:
        reads = tuple(x for x in node.args if isinstance(x, Node))
        texts = [f"{{{id(x)}}}" if isinstance(x, Node) else f"{float(x)!r}f" for x in node.args]
        if node.op in REDUCE:
            nests.append(Nest(node, node.op, texts[0], reads))
        else:
            nests.append(Nest(node, "map", POINTWISE[node.op][0].format(*texts), reads))
    return nests


# ---- 3. fusion: nests -> one kernel a run of rows (package: fuser) ---------------------------------------------------


def fuse(nests, output):
    """Inline each map where it is read, and keep what is left in one loop over rows.

    Both are legal here because every nest reads other nests in its own row only. What is read by nobody is dropped; a
    map is computed anew for each reader, which a cost model would weigh.
    """
    made = {nest.node: nest for nest in nests}
    kept, inlined = [], 0

    def text_of(node, column):
        nonlocal inlined
        if node.op == "input":
            return f"{node.args[0]}[i * {node.shape[1]} + {column if node.shape[1] > 1 else 0}]"
        nest = made[node]
        if nest.kind != "map":
            if nest not in kept:
                body = fill(nest, "j")  # what it reads is kept before it
                kept.append(nest)
                nest.body = body
            return f"r{kept.index(nest)}"
        inlined += 1
        return fill(nest, column)

    def fill(nest, column):
        text = nest.body
        for node in nest.reads:
            text = text.replace(f"{{{id(node)}}}", text_of(node, column))
        return text

    last = made[output]
    final = text_of(output, "j")
    return kept, final, {"nests": len(nests), "kernels": 1, "inlined": inlined - (last.kind == "map")}


# ---- 4. emission: kernel -> C++ (packages: scheduler, cpp) -----------------------------------------------------------


def emit(graph, kept, final):
    """Print the kernel: a loop over rows, a loop for each reduction, and one for the result."""
    rows, columns = graph.output.shape
    pointers = ", ".join([*[f"const float* {name}" for name in graph.inputs], "float* out"])
    lines = ["#include <cmath>", f'extern "C" void kernel({pointers}) {{', f"  for (long i = 0; i < {rows}; i++) {{"]
    for number, nest in enumerate(kept):
        start, step = REDUCE[nest.kind]
        (read,) = nest.reads
        lines.append(f"    float r{number} = [&] {{ float acc = {start};")
        lines.append(
            f"      for (long j = 0; j < {read.shape[1]}; j++) {step.format(nest.body)}  // line {nest.node.line}"
        )
        lines.append("      return acc; }();")
    lines.append(f"    for (long j = 0; j < {columns}; j++) out[i * {columns} + j] = {final};")
    return "\n".join([*lines, "  }", "}", ""])


# ---- 5. build and cache (package: runtime) ---------------------------------------------------------------------------

CACHE = Path(tempfile.mkdtemp())  # a real one is trusted, locked and bounded: docs/threat-model.md


def build(source):
    """Compile the text once, and load it; the file is named after what it is made from."""
    path = CACHE / f"{hashlib.sha256(source.encode()).hexdigest()[:16]}.so"
    if not path.exists():
        path.with_suffix(".cpp").write_text(source)
        flags = ["-O2", "-ffp-contract=off", "-shared", "-fPIC", "-o", str(path)]
        subprocess.run(["g++", *flags, str(path.with_suffix(".cpp"))], check=True)
    return ctypes.CDLL(str(path)).kernel


# ---- 6. dispatch: guards choose among compiled versions (packages: guards, dispatch, framehook) ----------------------


class compile:  # noqa: N801  (it is used as a function)
    """Compile `function` at the call whose guards nothing fits; what can't be captured runs in eager."""

    def __init__(self, function):
        self.function, self.versions, self.log = function, [], []

    def __call__(self, *args):
        given = dict(zip(self.function.__code__.co_varnames, args, strict=False))
        for graph, kernel in self.versions:
            if all(check(given) for _, check in graph.guards):
                return self.run(graph, kernel, given)
        if self.versions:
            graph = self.versions[-1][0]
            failed = next(text for text, check in graph.guards if not check(given))
            self.log.append(f"compiled again: it is no longer so that {failed}")
        try:
            graph = capture(self.function, args)
        except BreakError as why:
            self.log.append(f"runs in eager: {why}")
            return self.function(*args)
        kept, final, counts = fuse(lower(graph), graph.output)
        self.log.append("{nests} nests, {kernels} kernel, {inlined} inlined".format(**counts))
        self.versions.append((graph, build(emit(graph, kept, final))))
        return self.run(*self.versions[-1], given)

    def run(self, graph, kernel, given):
        """Call the kernel on the memory of tensors."""
        out = torch.empty(graph.output.shape)
        kernel(*[ctypes.c_void_p(given[name].data_ptr()) for name in graph.inputs], ctypes.c_void_p(out.data_ptr()))
        return out


# ---- and now ---------------------------------------------------------------------------------------------------------


def softmax(x, y, scale):
    z = x * scale + torch.sin(y)
    e = torch.exp(z - z.amax(-1, keepdim=True))
    return e / e.sum(dim=-1, keepdim=True)


def talks(x):
    print("hello")
    return x + 1


def main():
    fast = compile(softmax)
    for rows in (4, 4, 5):
        x, y = torch.randn(rows, 8), torch.randn(rows, 8)
        torch.testing.assert_close(fast(x, y, 2), torch.softmax(x * 2 + torch.sin(y), -1))
    torch.testing.assert_close(fast(x, y, 3), torch.softmax(x * 3 + torch.sin(y), -1))
    told = compile(talks)
    torch.testing.assert_close(told(x), x + 1)
    for line in [*fast.log, *told.log]:
        print(line)
    assert len(fast.versions) == 3 and not told.versions
    kept, final, _ = fuse(lower(graph := capture(softmax, (x, y, 2))), graph.output)
    print(emit(graph, kept, final))


if __name__ == "__main__":
    main()
