"""A toy tracer, graph compiler, guard builder and linker: enough of each to drive a dispatcher without any pass.

The "graph" of a frame is its whole body, run by a copy of its code; a guard holds for arguments of the same types (and
of the same values, for names in `exact`). A hole is a string constant that starts with `hole:`.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any

from intarsia_dispatch import CompiledGraph, DispatchConfig, Dispatcher, ErrorPolicy, FrameGuard
from intarsia_framehook import FrameInfo, frame_values
from intarsia_ir.records import Capture, GraphBreak, LinkableCode, Origin, Signature, Symbolic

BREAK = GraphBreak("toy.break", "the toy broke", Origin("toy.py", 7, "f"), "don't")


def calling(code: types.CodeType, body: str) -> types.CodeType:
    """Return code with the parameters and free variables of `code` and another body.

    `ARGS` in the body stands for all arguments, as they are passed on.
    """
    positional, n = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    stars = [star for star, flag in (("*", 4), ("**", 8)) if code.co_flags & flag]
    names = code.co_varnames[: n + len(stars)]
    starred = [star + name for star, name in zip(stars, names[n:])]
    bare = ["*"] if code.co_kwonlyargcount and "*" not in stars else []
    parameters = [*names[:positional], *starred[: stars.count("*")], *bare, *names[positional:n]]
    parameters += starred[stars.count("*") :]
    if code.co_posonlyargcount:
        parameters.insert(code.co_posonlyargcount, "/")
    arguments = [*names[:positional], *(f"{name}={name}" for name in names[positional:n]), *starred]
    free = ", ".join(code.co_freevars)
    inner = [f"if 0: {free}"] if free else []
    inner += body.replace("ARGS", ", ".join(arguments)).splitlines()
    lines = [f"def outer({free}):", f" def replaced({', '.join(parameters)}):", *("  " + line for line in inner)]
    namespace: dict[str, Any] = {}
    exec(compile("\n".join([*lines, " return replaced"]), "<toy>", "exec"), namespace)
    return namespace["outer"](*code.co_freevars).__code__


def link(linkable: LinkableCode, holes: dict[str, object]) -> types.CodeType:
    """Fill string constants `hole:name`."""
    assert set(holes) == set(linkable.holes)

    def fill(constant: object) -> object:
        named = isinstance(constant, str) and constant.startswith("hole:")
        return holes[constant[5:]] if named else constant

    return linkable.code.replace(co_consts=tuple(map(fill, linkable.code.co_consts)))


class Toy:
    """The passes, with places to make each of them misbehave, and a log.

    Args:
        exact: Names of parameters whose value is guarded, not only the type.
        on_error: Of its `ErrorPolicy`.
        fullgraph: Of its `ErrorPolicy`.
        **policy: Further fields of `DispatchConfig`.
    """

    def __init__(
        self, exact: tuple[str, ...] = (), *, on_error: Any = "eager", fullgraph: bool = False, **policy: Any
    ) -> None:
        self.exact = exact
        self.captured: list[tuple[str, dict[str, Any]]] = []
        self.dynamic: list[Any] = []
        self.changed: Callable[..., Symbolic] = lambda values, names: Symbolic()
        self.events: list[Any] = []
        self.counted: dict[str, int] = {}
        self.plans: dict[str, Callable[[types.CodeType, Any, int], Capture]] = {}
        self.graphs: dict[str, Callable[..., Any]] = {}
        self.before_capture: Callable[[str], None] = lambda name: None
        self.before_guards: Callable[[str], None] = lambda name: None
        self.config = DispatchConfig(
            capture=self.capture,
            compile_graph=self.compile_graph,
            build_guards=self.build_guards,
            link=link,
            on_event=self.events.append,
            count=self.count,
            policy=ErrorPolicy(on_error, fullgraph),
            **{"skip_code": lambda code: not self.knows(code), **policy},
        )
        self.dispatcher = Dispatcher(self.config)
        self.compile = self.dispatcher.compile

    def knows(self, code: types.CodeType) -> bool:
        """Skip the frames of pytest and of libraries, which tests call inside of roots."""
        return code.co_filename.startswith(("<toy", __file__.rsplit("/", 1)[0]))

    def count(self, **amounts: int) -> None:
        for name, amount in amounts.items():
            self.counted[name] = self.counted.get(name, 0) + amount

    def kinds(self) -> list[str]:
        """The names of the events so far."""
        return [event.kind.value for event in self.events]

    # ---- the passes

    def capture(self, code: types.CodeType, frame: Any, *, fullgraph: bool, number: int, dynamic: Any) -> Capture:
        self.dynamic.append(dynamic)
        self.captured.append((code.co_name, dict(frame.locals)))
        self.before_capture(code.co_name)
        plan = self.plans.get(code.co_name, whole_frame)
        return plan(code, frame, number)

    def compile_graph(self, capture: Capture, frame: FrameInfo) -> CompiledGraph:
        name, run = capture.graph_module
        return CompiledGraph(self.graphs.get(name, run), draws_random=False)

    def build_guards(self, code: types.CodeType, frame: Any, capture: Capture, graph: Any) -> FrameGuard:
        self.before_guards(code.co_name)
        values = frame_values(code, frame)
        names = (*code.co_varnames[: len(values) - len(code.co_freevars)], *code.co_freevars)
        exact = self.exact
        wanted = [(type(value), value if name in exact else None) for name, value in zip(names, values)]

        def failing(*values: Any) -> str | None:
            for name, value, (kind, number) in zip(names, values, wanted):
                if type(value) is not kind:
                    return f"type({name}) is {kind.__name__}"
                if name in exact and value != number:
                    return f"{name} == {number}"
            return None

        def explain(values: dict[str, Any], namespace: dict[str, Any]) -> str | None:
            return failing(*map(values.get, names))

        toy = weakref.ref(self)  # a guard must not lead back to the code it belongs to
        return FrameGuard(lambda *values: failing(*values) is None, explain, changed=lambda v, g: toy().changed(v, g))


# ---- plans: what capture does with a frame


def whole_frame(code: types.CodeType, frame: Any, number: int, breaks: tuple[GraphBreak, ...] = ()) -> Capture:
    """One graph for all of it."""
    hole = f"__compiled_fn_{number}"
    copy = types.FunctionType(code.replace(), frame.globals, code.co_name, None, frame.closure)
    copy.__kwdefaults__ = None
    new = calling(code, f"graph = 'hole:{hole}'\nreturn graph(ARGS)")
    return Capture((code.co_name, copy), Signature(), (), (), LinkableCode(new, (hole,)), breaks)


def native(code: types.CodeType, frame: Any, number: int) -> Capture:
    """Nothing in it."""
    return Capture(None, Signature(), (), (), LinkableCode(code))


def native_break(code: types.CodeType, frame: Any, number: int) -> Capture:
    """A break that leaves nothing to compile."""
    return Capture(None, Signature(), (), (), LinkableCode(code), (BREAK,))


def broken(code: types.CodeType, frame: Any, number: int) -> Capture:
    """One graph, and a break that the toy pretends to have had."""
    return whole_frame(code, frame, number, (BREAK,))


def raising(error: BaseException) -> Callable[..., Any]:
    """Return something that raises."""

    def plan(*arguments: Any, **named: Any) -> Any:
        raise error

    return plan
