"""Random Python functions, as source text: every program has one meaning, most raise nothing, many change things.

Variables are typed by their first letter, so that most operations fit: `i` int, `l` list of ints, `d` dict, `s` str,
`o` object, `t` tensor (only with `tensors=True`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

PRELUDE = """
import contextlib, functools, itertools

counter = 0
log = []

class Base:
    scale = 3
    def __init__(self, x):
        self.x = x
        self.items = [x]
    def bump(self, n=1):
        self.x += n
        return self.x
    @property
    def double(self):
        return self.x * 2
    def __len__(self):
        return len(self.items)
    def __getitem__(self, i):
        return self.items[i]
    def __call__(self, *args, **kwargs):
        return (self.x, args, sorted(kwargs.items()))
    def __enter__(self):
        self.items.append("enter")
        return self
    def __exit__(self, kind, value, tb):
        self.items.append("exit" if kind is None else kind.__name__)
        return kind is KeyError
    def __repr__(self):
        return f"{type(self).__name__}({self.x}, {self.items})"
    def __eq__(self, other):
        return isinstance(other, Base) and self.x == other.x

class Derived(Base):
    scale = 5
    def __init__(self, x, y=2):
        super().__init__(x)
        self.y = y
    def bump(self, n=1):
        return super().bump(n + self.y)
    @classmethod
    def make(cls, x):
        return cls(x + 1)
    @staticmethod
    def twice(x):
        return x + x

def helper(a, b=2, *rest, k=3, **kw):
    return a * 2 + b - k + sum(rest) + len(kw)

def risky(a):
    if a % 3 == 0:
        raise ValueError("risky", a)
    return a + 1

def talk(a):
    print("talk", a)
    return a

def count_up(n):
    for value in range(n):
        yield value
        log.append(value)

@contextlib.contextmanager
def managed(items, tag):
    items.append(("in", tag))
    try:
        yield tag
    finally:
        items.append(("out", tag))

def decorate(f):
    @functools.wraps(f)
    def wrapper(*args, **kwargs):
        return f(*args, **kwargs) + 1
    return wrapper

@decorate
def decorated(a):
    return a * 3
"""


class Writer:
    """Writes one function; `draw` makes the choices."""

    def __init__(self, draw: Callable[[Any], Any], tensors: bool) -> None:
        self.draw = draw
        self.tensors = tensors
        self.lines: list[str] = []
        self.depth = 1
        self.loops = 0
        self.names = {"i": ["i0", "i1"], "l": ["l0"], "d": ["d0"], "s": ["s0"], "o": ["o0"]}
        if tensors:
            self.names["t"] = ["t0", "t1"]

    def pick(self, items: Any) -> Any:
        """Choose one of several."""
        return self.draw(st.sampled_from(list(items)))

    def name(self, kind: str) -> str:
        """Choose a variable of a type."""
        return str(self.pick(self.names[kind]))

    def target(self, kind: str) -> str:
        """Choose a variable to assign: a known one or a new one."""
        if self.draw(st.booleans()) or len(self.names[kind]) > 4:
            return self.name(kind)
        fresh = f"{kind}{len(self.names[kind])}"
        return fresh

    def declare(self, name: str) -> None:
        """Make a variable known."""
        kind = name[0]
        if name not in self.names[kind]:
            self.names[kind].append(name)

    def line(self, text: str) -> None:
        """Write a line at the current depth."""
        self.lines.append("    " * self.depth + text)

    # -- expressions ---------------------------------------------------------------------------------------------

    def integer(self, depth: int = 2) -> str:
        """Write an expression of type int."""
        if depth == 0:
            return str(self.pick([self.name("i"), self.draw(st.integers(-3, 6)), self.name("i")]))
        a = lambda: self.integer(depth - 1)
        choices = [
            lambda: f"({a()} {self.pick(['+', '-', '*', '&', '|', '^'])} {a()})",
            lambda: f"({a()} {self.pick(['//', '%'])} {self.pick([2, 3, a()])})",
            lambda: f"len({self.name('l')})",
            lambda: f"sum({self.name('l')})",
            lambda: f"{self.name('l')}[{self.pick([0, -1, a()])}]",
            lambda: f"{self.name('d')}.get({a()}, {a()})",
            lambda: f"({a()} if {self.boolean()} else {a()})",
            lambda: f"helper({a()}, {a()})",
            lambda: f"helper({a()}, k={a()}, z=1)",
            lambda: f"helper(*{self.name('l')}, {a()})",
            lambda: f"risky({a()})",
            lambda: f"{self.name('o')}.bump({a()})",
            lambda: f"{self.name('o')}.x",
            lambda: f"{self.name('o')}.double",
            lambda: f"{self.name('o')}.scale",
            lambda: f"max({a()}, {a()})",
            lambda: f"min({self.name('l')}, default={a()})",
            lambda: f"abs({a()})",
            lambda: f"decorated({a()})",
            lambda: f"(lambda q, r={a()}: q - r)({a()})",
            lambda: f"sum(q * 2 for q in {self.name('l')} if q {self.pick(['>', '<', '!='])} {a()})",
            lambda: f"functools.reduce(lambda q, r: q + r, {self.name('l')}, {a()})",
            lambda: f"next(iter({self.name('l')}), {a()})",
            lambda: f"int({self.boolean()})",
            lambda: f"len({self.name('s')})",
            lambda: f"({self.name('i')} := {a()})",
            lambda: f"Derived.twice({a()})",
            lambda: f"talk({a()})",
        ]
        return str(self.pick(choices)())

    def boolean(self) -> str:
        """Write a condition."""
        a = lambda: self.integer(1)
        choices = [
            lambda: f"{a()} {self.pick(['<', '<=', '==', '!=', '>', '>='])} {a()}",
            lambda: f"{a()} in {self.name('l')}",
            lambda: f"{a()} not in {self.name('d')}",
            lambda: f"not {self.name('l')}",
            lambda: f"({a()} < {a()} <= {a()})",
            lambda: f"({a()} > 0 and {a()} < 5)",
            lambda: f"({a()} or {self.name('l')})",
            lambda: f"isinstance({self.name('o')}, {self.pick(['Base', 'Derived', 'int'])})",
            lambda: f"any(q > {a()} for q in {self.name('l')})",
            lambda: f"{self.name('o')} == {self.name('o')}",
            lambda: f"hasattr({self.name('o')}, {self.pick(['x', 'y', 'zz'])!r})",
            lambda: f"{self.name('s')} > {self.name('s')}",
        ]
        if self.tensors:
            choices += [lambda: f"({self.name('t')}.sum() > {a()})", lambda: f"{self.name('t')}.shape[0] > {a()}"]
        return str(self.pick(choices)())

    def items(self) -> str:
        """Write an expression of type list."""
        a = lambda: self.integer(1)
        choices = [
            lambda: f"[{a()}, {a()}]",
            lambda: f"[q + {a()} for q in {self.name('l')}]",
            lambda: f"[q for q in range({self.pick([2, 3, 4])}) if q != {a()}]",
            lambda: f"{self.name('l')}[{self.pick([':', '1:', ':-1', '::-1', '1:3'])}]",
            lambda: f"{self.name('l')} + [{a()}]",
            lambda: f"sorted({self.name('l')}{self.pick(['', ', reverse=True', ', key=lambda q: -q'])})",
            lambda: f"list({self.name('d')}.values())",
            lambda: f"list(map(lambda q: q * {a()}, {self.name('l')}))",
            lambda: f"[*{self.name('l')}, {a()}]",
            lambda: f"list(count_up({self.pick([1, 2, 3])}))",
            lambda: f"[q * r for q, r in zip({self.name('l')}, {self.name('l')})]",
            lambda: f"[q for pair in enumerate({self.name('l')}) for q in pair]",
            lambda: f"list(itertools.chain({self.name('l')}, ({a()},)))",
            lambda: f"list(dict.fromkeys({self.name('l')}))",
            lambda: f"list(filter(None, {self.name('l')}))",
            lambda: self.name("l"),
        ]
        return str(self.pick(choices)())

    def mapping(self) -> str:
        """Write an expression of type dict."""
        a = lambda: self.integer(1)
        choices = [
            lambda: f"{{{a()}: {a()}, {a()}: {a()}}}",
            lambda: f"{{q: q * 2 for q in {self.name('l')}}}",
            lambda: f"dict({self.name('d')})",
            lambda: f"{{**{self.name('d')}, {a()}: {a()}}}",
            lambda: f"{self.name('d')} | {{{a()}: {a()}}}",
        ]
        return str(self.pick(choices)())

    def text(self) -> str:
        """Write an expression of type str."""
        a = lambda: self.integer(1)
        choices = [
            lambda: f'f"{{{self.name("i")}}}-{{{self.name("i")}!r:>3}}"',
            lambda: f"{self.name('s')} + 'x'",
            lambda: f"{self.name('s')}.upper()[:6]",
            lambda: f"'%d/%s' % ({a()}, {self.name('s')}[:4])",
            lambda: f"'{{}}.{{k}}'.format({a()}, k={a()})[:8]",
            lambda: f"','.join(str(q) for q in {self.name('l')})[:8]",
        ]
        return str(self.pick(choices)())

    def instance(self) -> str:
        """Write an expression that gives an object."""
        a = lambda: self.integer(1)
        choices = [
            lambda: f"Base({a()})",
            lambda: f"Derived({a()}, y={a()})",
            lambda: f"Derived.make({a()})",
            lambda: self.name("o"),
        ]
        return str(self.pick(choices)())

    def tensor(self) -> str:
        """Write an expression that gives a float tensor of shape (3,)."""
        t = lambda: self.name("t")
        choices = [
            lambda: f"({t()} {self.pick(['+', '-', '*'])} {t()})",
            lambda: f"({t()} {self.pick(['+', '-', '*'])} {self.integer(1)})",
            lambda: f"({self.integer(1)} - {t()})",
            lambda: f"torch.{self.pick(['sin', 'relu', 'tanh', 'abs'])}({t()})",
            lambda: f"{t()}.clamp(-2, 2)",
            lambda: f"torch.where({t()} > 0, {t()}, {t()})",
            lambda: f"torch.stack([{t()}, {t()}]).sum(dim=0)",
            lambda: f"{t()}.flip(0)",
            lambda: f"{t()}.softmax(-1)",
            lambda: f"torch.cat([{t()}[:1], {t()}[1:]])",
            lambda: f"{t()}.max().expand(3).clone()",
            lambda: f"sum([{t()}, {t()}])",
            lambda: t(),
        ]
        return str(self.pick(choices)())

    # -- statements ----------------------------------------------------------------------------------------------

    def block(self, size: int) -> None:
        """Write an indented block."""
        self.depth += 1
        before = {kind: list(names) for kind, names in self.names.items()}
        for _ in range(self.draw(st.integers(1, size))):
            self.statement(size - 1)
        self.names = before
        self.depth -= 1

    def statement(self, size: int) -> None:
        """Write one statement."""
        simple = [
            self.assign, self.assign, self.augment, self.change_list, self.change_dict, self.change_object,
            self.say, self.use_global, self.unpack, self.delete,
        ]  # fmt: skip
        compound = [self.branch, self.loop, self.attempt, self.context, self.closure, self.match, self.repeat]
        if self.tensors:
            simple += [self.assign_tensor, self.assign_tensor, self.change_tensor]
        self.pick(simple + (compound if size > 0 else []))(size)

    def assign(self, size: int) -> None:
        """Assign a variable."""
        kind = self.pick("iilldso")
        text = {
            "i": self.integer,
            "l": self.items,
            "d": self.mapping,
            "s": self.text,
            "o": self.instance,
        }[kind]()
        name = self.target(kind)
        self.line(f"{name} = {text}")
        self.declare(name)

    def assign_tensor(self, size: int) -> None:
        """Assign a tensor."""
        text = self.tensor()
        name = self.target("t")
        self.line(f"{name} = {text}")
        self.declare(name)

    def change_tensor(self, size: int) -> None:
        """Change a tensor in place."""
        t = self.name("t")
        self.line(
            self.pick(
                [f"{t} += {self.integer(1)}", f"{t}.mul_(2)", f"{t}[0] = {self.integer(1)}", f"{t} = {t}.clone()"]
            )
        )

    def augment(self, size: int) -> None:
        """Write an augmented assignment."""
        choices = [
            lambda: f"{self.name('i')} {self.pick(['+=', '-=', '*='])} {self.integer(1)}",
            lambda: f"{self.name('l')} += [{self.integer(1)}]",
            lambda: f"{self.name('l')}[0] += {self.integer(1)}",
            lambda: f"{self.name('o')}.x -= {self.integer(1)}",
            lambda: f"{self.name('d')} |= {{{self.integer(1)}: 1}}",
        ]
        self.line(self.pick(choices)())

    def change_list(self, size: int) -> None:
        """Change a list in place."""
        name, a = self.name("l"), self.integer(1)
        choices = [
            f"{name}.append({a})", f"{name}.extend([{a}, 1])", f"{name}.insert(1, {a})", f"{name}.pop()",
            f"{name}[-1] = {a}", f"del {name}[:1]", f"{name}.reverse()", f"{name}.sort()", f"{name}[1:2] = [{a}, {a}]",
            f"{name}.remove({a})", f"{name}.clear()",
        ]  # fmt: skip
        self.line(self.pick(choices))

    def change_dict(self, size: int) -> None:
        """Change a dict in place."""
        name, a, b = self.name("d"), self.integer(1), self.integer(1)
        choices = [
            f"{name}[{a}] = {b}", f"{name}.update({{{a}: {b}}})", f"{name}.pop({a}, None)", f"del {name}[{a}]",
            f"{name}.setdefault({a}, {b})", f"{name}.popitem()",
        ]  # fmt: skip
        self.line(self.pick(choices))

    def change_object(self, size: int) -> None:
        """Change an object."""
        name, a = self.name("o"), self.integer(1)
        choices = [
            f"{name}.x = {a}", f"{name}.items.append({a})", f"{name}.extra = {self.name('l')}", f"{name}.bump({a})",
            f"setattr({name}, 'y', {a})", f"{name}.friend = {self.name('o')}",
        ]  # fmt: skip
        self.line(self.pick(choices))

    def say(self, size: int) -> None:
        """Print."""
        self.line(f"print({self.pick([self.name('i'), self.name('l'), self.name('s'), self.name('d')])})")

    def use_global(self, size: int) -> None:
        """Change a global."""
        self.line(self.pick(["counter += 1", f"counter = {self.integer(1)}", f"log.append({self.integer(1)})"]))

    def unpack(self, size: int) -> None:
        """Unpack a sequence."""
        a, b = self.name("i"), self.name("i")
        choices = [f"{a}, {b} = {b}, {a}", f"{a}, *_ = {self.name('l')}", f"{a}, {b} = ({self.integer(1)}, 2)"]
        self.line(self.pick(choices))

    def delete(self, size: int) -> None:
        """Delete and bind again."""
        name = self.name("i")
        self.line(f"del {name}")
        self.line(f"{name} = {self.draw(st.integers(0, 5))}")

    def branch(self, size: int) -> None:
        """Write an if statement."""
        self.line(f"if {self.boolean()}:")
        self.block(size)
        if self.draw(st.booleans()):
            self.line("else:")
            self.block(size)

    def loop(self, size: int) -> None:
        """Write a for statement."""
        self.loops += 1
        iterable = self.pick(
            [f"range({self.draw(st.integers(1, 4))})", f"list({self.name('l')})[:4]", f"tuple({self.name('l')})[:3]",
             f"count_up({self.draw(st.integers(1, 3))})", f"reversed({self.name('l')}[:3])",
             f"sorted({self.name('d')})[:3]"]
        )  # fmt: skip
        name = self.name("i")
        target = self.pick([name, f"_, {name}"])
        self.line(f"for {target} in {iterable if target == name else f'enumerate({iterable})'}:")
        self.block(size)
        if self.draw(st.booleans()):
            self.depth += 1
            self.line(f"if {self.boolean()}: {self.pick(['break', 'continue'])}")
            self.depth -= 1
        if self.draw(st.booleans()):
            self.line("else:")
            self.block(1)

    def repeat(self, size: int) -> None:
        """Write a while statement that ends."""
        self.loops += 1
        name = f"_w{self.loops}"
        self.line(f"{name} = 0")
        self.line(f"while {name} < {self.draw(st.integers(1, 3))}:")
        self.depth += 1
        self.line(f"{name} += 1")
        self.depth -= 1
        self.block(size)

    def attempt(self, size: int) -> None:
        """Write a try statement."""
        self.line("try:")
        self.block(size)
        if self.draw(st.booleans()):
            self.depth += 1
            self.line(self.pick(["raise KeyError(i0)", "raise ValueError('v')", "l0[99]", "d0['none']", "1 // 0"]))
            self.depth -= 1
        kind = self.pick(["except (ValueError, LookupError) as e:", "except Exception as e:", "except KeyError as e:"])
        finish = self.draw(st.booleans())
        if not finish or self.draw(st.booleans()):
            self.line(kind)
            self.depth += 1
            self.line(self.pick(["log.append(repr(e))", "s0 = str(e)[:9]", "log.append(type(e).__name__)"]))
            self.depth -= 1
            self.block(1)
            finish = finish or self.draw(st.booleans())
        if finish:
            self.line("finally:")
            self.block(1)

    def context(self, size: int) -> None:
        """Write a with statement."""
        choices = [
            f"with managed({self.name('l')}, {self.integer(1)}):",
            f"with {self.name('o')}:",
            f"with Base({self.integer(1)}) as o0, managed(log, 'm'):",
        ]
        if self.tensors:
            choices.append("with torch.no_grad():")
        self.line(self.pick(choices))
        self.block(size)

    def closure(self, size: int) -> None:
        """Write a nested function and call it."""
        name = self.name("i")
        self.line(f"def inner(q, k={self.integer(1)}):")
        self.depth += 1
        if self.draw(st.booleans()) and name not in ("",):
            self.line(f"nonlocal {name}")
            self.line(f"{name} = {name} + q")
        self.line(f"return q * k + {name}")
        self.depth -= 1
        self.line(f"{self.name('l')}.append(inner({self.integer(1)}))")
        if self.draw(st.booleans()):
            self.line("kept.append(inner)")

    def match(self, size: int) -> None:
        """Write a match statement."""
        self.line(f"match {self.pick([self.items(), self.integer(1), self.mapping(), self.name('o')])}:")
        self.depth += 1
        for pattern in ("[q, *_] if q > 1", "int()", "{1: q}", "Base(x=q)", "_"):
            if pattern == "_" or self.draw(st.booleans()):
                self.line(f"case {pattern}:")
                self.block(1)
        self.depth -= 1


@st.composite
def programs(draw: Callable[[Any], Any], tensors: bool = False, size: int = 3) -> str:
    """Return the source of a module that defines `f`."""
    writer = Writer(draw, tensors)
    writer.line("global counter")
    writer.line("kept = []")
    for _ in range(draw(st.integers(2, 6))):
        writer.statement(size)
    results = ["i0", "i1", "l0", "d0", "s0", "o0", "[k(1) for k in kept]", *(["t0", "t1"] if tensors else [])]
    writer.line(f"return {', '.join(results)}")
    parameters = "i0, i1, l0, d0, s0, o0" + (", t0, t1" if tensors else "")
    body = "\n".join(writer.lines)
    head = "import torch\n" if tensors else ""
    return f"{head}{PRELUDE}\n\ndef f({parameters}):\n{body}\n"
