"""The grammar of the random programs, as tables of templates.

In a template `$i` stands for an expression of kind `i`, `@i` for a variable of kind `i`, `&i` for a variable to assign
(`@i1`, `&i1`: the same one wherever the digit is the same), `$(a b c)` for one of the words, `#` for a number of its
own, a line `$block` for an indented block. The kinds:

    i int            f float        s str           b condition (expression only)
    l list of int    d dict         q set           p tuple of int      o object        r named tuple
    t tensor (n, 3)  v tensor (3,)  j int64 (n, 3)  k bool tensor       L list of t     D dict of t     m module
"""

from __future__ import annotations

__all__ = ["EVENTS", "EXPRESSIONS", "PARAMETERS", "PRELUDE", "RAISES", "STATEMENTS", "STATEMENTS_IN_LOOPS"]

PRELUDE = '''
import collections, contextlib, dataclasses, enum, functools, itertools, math, operator
import torch

counter, ratio, flag = 0, 0.5, True
log, table = [], {"a": 1, "b": 2}
weight = torch.arange(3.0) / 2

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
    @double.setter
    def double(self, value):
        log.append(("double", value))
        self.x = value // 2
    def __len__(self):
        return len(self.items)
    def __getitem__(self, i):
        return self.items[i]
    def __setitem__(self, i, value):
        self.items[i] = value
    def __contains__(self, value):
        return value == self.x
    def __iter__(self):
        return iter(self.items)
    def __call__(self, *args, **kwargs):
        return self.x + len(args) - len(kwargs)
    def __enter__(self):
        self.items.append(0)
        return self
    def __exit__(self, kind, value, tb):
        self.items.append(1 if kind is None else 2)
        log.append("exit" if kind is None else kind.__name__)
        return kind is KeyError
    def __eq__(self, other):
        return isinstance(other, Base) and self.x == other.x
    __hash__ = None
    def __add__(self, other):
        return self.x + (other.x if isinstance(other, Base) else other)
    def __lt__(self, other):
        return self.x < other.x
    def __bool__(self):
        return self.x > 0
    def __getattr__(self, name):
        if name.startswith("dyn_"):
            return len(name)
        raise AttributeError(f"no {name}")
    def grow(self, t):
        self.t = t * self.x
        return self.t

class Derived(Base):
    scale = 5
    def __init__(self, x, y=2):
        super().__init__(x)
        self.y = y
    def bump(self, n=1):
        return super().bump(n + self.y)
    def grow(self, t):
        return super().grow(t) + self.scale
    @classmethod
    def make(cls, x):
        return cls(x + 1)
    @staticmethod
    def twice(x):
        return x + x

class Slots:
    __slots__ = ("x", "items", "y")
    def __init__(self, x):
        self.x, self.items = x, []
    def bump(self, n=1):
        self.x -= n
        return self.x
    def __len__(self):
        return 1

class Stop2(ValueError):
    def __init__(self, n):
        super().__init__(f"stop {n}")
        self.n = n

@dataclasses.dataclass
class Point:
    x: int
    t: object = None
    items: list = dataclasses.field(default_factory=list)
    def moved(self, n):
        return dataclasses.replace(self, x=self.x + n)

Pair = collections.namedtuple("Pair", ["left", "right"])

class Color(enum.Enum):
    RED = 1
    BLUE = 2

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        self.norm = torch.nn.LayerNorm(3)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 3), torch.nn.ReLU()])
        self.register_buffer("seen", torch.zeros(3))
        self.calls, self.factor = 0, 2
        with torch.no_grad():
            for number, p in enumerate(self.parameters()):
                p.copy_((torch.arange(float(p.numel())).reshape(p.shape) % 5 - 2) / 4 + number / 8)
        self.requires_grad_(False)
    def forward(self, t, scale=1):
        self.calls += 1
        t = self.layer(t) * scale
        if self.training:
            self.seen.add_(1)
        for layer in self.layers:
            t = layer(t)
        return self.norm(t) * self.factor

def helper(a, b=2, *rest, k=3, **kw):
    return a * 2 + b - k + sum(rest) + len(kw)

def mix(t, u, alpha=1, *, scale=0.5):
    return t * scale + u * alpha

def risky(a):
    if a % 3 == 0:
        raise ValueError("risky", a)
    return a + 1

def talk(a):
    print("talk", a)
    return a

def down(n, t):
    if n <= 0:
        return t
    return down(n - 1, t + n)

def count_up(n):
    for value in range(n):
        yield value
        log.append(value)

def relay(items):
    yield from items
    yield len(items)

@contextlib.contextmanager
def managed(items, tag):
    items.append(tag)
    try:
        yield tag
    finally:
        items.append(-1)

def decorate(f):
    @functools.wraps(f)
    def wrapper(*args, **kwargs):
        return f(*args, **kwargs) + 1
    return wrapper

@decorate
def decorated(a):
    return a * 3

def adder(n):
    def add(x, m=1):
        return x + n * m
    return add

def tally():
    total = 0
    def bump(n):
        nonlocal total
        total += n
        return total
    def read():
        return total
    return bump, read

part = functools.partial(helper, 1, k=2)
add_two = adder(2)
bump_total, read_total = tally()
net = Net()

def T(n, seed=0, dtype=torch.float32):
    """A float tensor of shape (n, 3) with few bits, so that sums are exact."""
    return ((torch.arange(n * 3).reshape(n, 3) * (seed + 3) % 11 - 5) / 4).to(dtype)

def W(n, seed=0):
    """The same, transposed in memory."""
    return T(n, seed).t().contiguous().t()

def V(n, seed=0):
    """The same as a view into a larger tensor."""
    return torch.cat([T(n, seed), T(n, seed + 1)], 1)[:, 1:4]

def J(n, seed=0):
    return torch.arange(n * 3).reshape(n, 3) * (seed + 2) % 7 - 2
'''

# name -> what a call passes; `$n` is the number of rows of the call
PARAMETERS = {
    "i0": ["0", "1", "2", "3", "-1", "5"],
    "i1": ["2", "1", "4"],
    "f0": ["0.5", "2.0", "-1.25"],
    "s0": ["'ab'", "'xyz'", "''"],
    "l0": ["[3, 1, 2]", "[1]", "[2, 2, 5, 0]", "[]", "[4, 1]"],
    "d0": ["{'a': 1, 'b': 4}", "{'b': 4, 'a': 1}", "{'a': 2}", "{}", "{'z': 0, 'a': 3, 'b': 1}"],
    "q0": ["{1, 2}", "{3}", "set()"],
    "p0": ["(1, 2)", "(3, 4, 5)"],
    "o0": ["Base(2)", "Derived(1)", "Derived(3, y=0)", "Base(0)", "Slots(2)"],
    "r0": ["Pair(T($n), 2)", "Pair(T($n, 4), -1)"],
    "t0": ["T($n)", "T($n, 1)", "W($n)", "V($n)", "T($n, 2, torch.float64)", "T($n, 5)", "T($n, 6)"],
    "t1": ["T($n, 3)", "W($n, 3)", "t0", "t0[:]", "t0.view(-1, 3)", "T($n, 7)", "T(1, 2)", "T($n, 8)"],
    "v0": ["torch.ones(3)", "torch.tensor([0.5, -1.0, 2.0])", "t0[0]", "weight"],
    "j0": ["J($n)", "J($n, 1)"],
    "k0": ["T($n) > 0", "J($n) > 100"],
    "L0": ["[T($n), T($n, 1)]", "[t0, t1]", "[T($n), T($n), T($n, 2)]", "[]", "[t0]"],
    "D0": ["{'x': T($n), 'y': T($n, 1)}", "{'y': t0, 'x': T($n)}", "{'x': t1}", "{}"],
    "m0": ["net", "net", "Net()"],
}

# changes between calls, made outside of the compiled function
EVENTS = [
    "pass",
    "pass",
    "pass",
    "counter += 1",
    "ratio = ratio * 2",
    "flag = not flag",
    "log.clear()",
    "table['a'] += 1",
    "table['c'] = 7",
    "table.pop('a', None)",
    "Base.scale += 1",
    "Derived.scale = 9",
    "helper.__defaults__ = (5,)",
    "helper.__kwdefaults__ = {'k': 4}",
    "mix.__kwdefaults__ = {'scale': 2}",
    "weight = weight + 1",
    "weight.add_(1)",
    "add_two = adder(3)",
    "bump_total(2)",
    "net.eval()",
    "net.train()",
    "net.factor = 3",
    "net.seen.zero_()",
    "net.layers[0] = torch.nn.Linear(3, 3, bias=False).requires_grad_(False); net.layers[0].weight.fill_(0.5)",
    "net.layer.weight.mul_(0.5)",
    "part = functools.partial(helper, 2, k=1)",
    "talk = risky",
    "Derived.bump = Base.bump",
    "torch.set_default_dtype(torch.float64); torch.set_default_dtype(torch.float32)",
]

EXPRESSIONS: dict[str, list[str]] = {
    "i": [
        "($i $(+ - ^) $i)",
        "($i * $i % 23)",
        "($i $(// %) $(2 3 4))",
        "($i $(// %) $i)",
        "($i & 7)",
        "(-$i)",
        "(~$i)",
        "($i << 1)",
        "len($l)",
        "len($s)",
        "len($d)",
        "len(@o)",
        "sum($l)",
        "$l[$(0 -1 1)]",
        "$l[$i]",
        "$d.get($(b 'a' 'z'), $i)",
        "$d[$('a' 'b' 'z')]",
        "($i if $b else $i)",
        "helper($i)",
        "helper($i, $i)",
        "helper($i, k=$i, z=1)",
        "helper(*$l, $i)",
        "helper($i, **$d)",
        "helper($i, $i, $i, $i, k=$i)",
        "risky($i)",
        "@o.bump($i)",
        "@o.x",
        "@o.double",
        "@o.scale",
        "@o.missing",
        "@o.dyn_$(a bb)",
        "getattr(@o, $('x' 'y' 'zz'), $i)",
        "@o($i, k=1)",
        "(@o + $i)",
        "@o[$(0 -1)]",
        "$(max min)($i, $i)",
        "min($l, default=$i)",
        "max($l, key=lambda x: -x)",
        "abs($i)",
        "decorated($i)",
        "(lambda x, y=$i: x - y)($i)",
        "sum(x * 2 for x in $l if x $(> < !=) $i)",
        "functools.reduce(operator.add, $l, $i)",
        "next(iter($l), $i)",
        "next((x for x in $l if x > $i), $i)",
        "int($b)",
        "int($f)",
        "(@i := $i)",
        "Derived.twice($i)",
        "talk($i)",
        "counter",
        "table['a']",
        "part($i)",
        "add_two($i)",
        "adder($i)($i, m=2)",
        "bump_total($i)",
        "read_total()",
        "Color.$(RED BLUE).value",
        "@t.shape[$(0 1 -1)]",
        "@t.size(0)",
        "@t.dim()",
        "@j.numel()",
        "len(@t)",
        "@j.sum().item()",
        "int(@t.sum())",
        "@r.right",
        "@p[$(0 1 -1)]",
        "sum(@p)",
        "ord('a')",
        "divmod($i, $(2 3))[$(0 1)]",
        "round($f)",
        "hash($i)",
        "list(map(lambda x: x + $i, $l))[-1]",
        "len(@L)",
        "len(@D)",
        "(lambda *args, **kwargs: len(args) + len(kwargs))(*$l, **$d)",
        "@m.calls",
        "@m.factor",
        "sum(1 for _ in count_up($(1 2 3)))",
        "operator.itemgetter(0)($l)",
        "@q.pop()",
        "pow($i, 2, 7)",
        "bool($l)",
        "(@i or $i)",
        "(@i and $i)",
        "len({x % 2 for x in $l})",
    ],
    "f": [
        "($f $(+ -) $f)",
        "($f * 0.5)",
        "($i / $(2 4))",
        "float($i)",
        "ratio",
        "math.sqrt(abs($f))",
        "max($f, $i)",
        "float(@t.sum())",
        "@t.sum().item()",
        "@t.max().item()",
        "round($f, 1)",
        "sum(@v.tolist())",
        "torch.finfo(@t.dtype).eps",
        "float('inf')",
        "abs($f)",
    ],
    "s": [
        'f"{@i}-{@i!r:>3}"',
        'f"{@s!r}:{@i:>2}"',
        "(@s + 'x')[:8]",
        "@s.upper()",
        "@s.replace('a', 'b')",
        "@s[::-1]",
        "'%d/%s' % ($i, @s[:4])",
        "'{}.{k}'.format($i, k=$i)",
        "','.join(str(x) for x in $l)[:8]",
        "str($i)",
        "repr($l)[:9]",
        "str(@t.dtype)",
        "type($(@i @t @o @l)).__name__",
        "str(tuple(@t.shape))",
        "Color.RED.name",
        "helper.__name__",
        "@s * 2",
        "' a b'.split()[$(0 1)]",
        "f'{@f:.2f}'",
    ],
    "b": [
        "$i $(< <= == != > >=) $i",
        "$i in $l",
        "$s in $d",
        "$i not in @q",
        "not $l",
        "($i < $i <= $i)",
        "($i > 0 and $b)",
        "($i or $b)",
        "isinstance(@o, $(Base Derived int))",
        "isinstance(@t, torch.Tensor)",
        "any(x > $i for x in $l)",
        "all(x > $i for x in $l)",
        "@o == @o",
        "@o is @o",
        "@o",
        "hasattr(@o, $('x' 'y' 'zz' 'dyn_a'))",
        "@s $(> == <) @s",
        "@t is @t",
        "@t is not None",
        "@l is @l",
        "flag",
        "@t.shape[0] > $i",
        "@t.shape == @t.shape",
        "@t.dtype == torch.$(float32 float64)",
        "@t.is_contiguous()",
        "@t.sum() > $i",
        "(@t > 0).any()",
        "(@t > $i).all()",
        "@j.sum() > $i",
        "bool(@k.any())",
        "torch.equal(@t, @t)",
        "@m.training",
        "callable(@o)",
        "Color.RED == Color($(1 2))",
        "torch.is_grad_enabled()",
        "len(@L) > $i",
        "$('x' 'y') in @D",
        "@l == $l",
        "@d == @d",
        "$i is None",
        "torch.is_tensor($(@t @i))",
        "@t.requires_grad",
        "issubclass(Derived, $(Base int))",
    ],
    "l": [
        "[$i, $i]",
        "[x + $i for x in $l]",
        "[x for x in range($(2 3 4)) if x != $i]",
        "@l[$(: 1: :-1 ::-1 1:3 :2)]",
        "(@l + [$i])[:6]",
        "sorted($l)",
        "sorted($l, reverse=True)",
        "sorted($l, key=lambda x: (x % 3, x))",
        "list($d.values())",
        "list(map(lambda x: x * $i % 19, $l))",
        "[*@l, $i][:6]",
        "list(count_up($(1 2 3)))",
        "list(relay(@l))[:6]",
        "[x * y % 19 for x, y in zip($l, $l)]",
        "[x for pair in enumerate($l) for x in pair][:6]",
        "[x - y for x in @l[:2] for y in @l[:2] if x != y]",
        "list(itertools.chain(@l, ($i,)))[:6]",
        "list(dict.fromkeys($l))",
        "list(filter(None, $l))",
        "list(range($i % 4))",
        "list(reversed(@l))",
        "[(lambda: x)() for x in @l]",
        "[g() for g in [lambda: x for x in @l]]",
        "@l * 1",
        "@l.copy()",
        "list(@p)",
        "[len(x) for x in @D]",
        "[t.shape[0] for t in @L]",
        "list(@t.shape)",
        "@j.flatten()[:3].tolist()",
        "@o.items",
        "list(itertools.islice(itertools.count($i), 2))",
        "[x if x > $i else -x for x in $l]",
        "list(zip(*[@l[:2], @l[:2]]))[:0] + [$i]",
        "sorted(@q)",
        "[*@p, *@l][:6]",
        "list(@o)",
    ],
    "d": [
        "{'a': $i, 'b': $i}",
        "{str(x): x * 2 for x in @l}",
        "dict(@d)",
        "{**@d, 'c': $i}",
        "(@d | {'a': $i})",
        "dict(a=$i, **{'b': $i})",
        "dict(zip('ab', $l))",
        "{k: v + 1 for k, v in @d.items()}",
        "dict(sorted(@d.items()))",
        "@d.copy()",
        "table",
        "collections.OrderedDict(@d)",
        "dict.fromkeys(@s, $i)",
        "{k: v for k, v in @d.items() if v > $i}",
    ],
    "q": ["{$i, $i}", "set($l)", "{x % 3 for x in @l}", "(@q | {$i})", "(@q & set($l))", "@q - {$i}", "set(@q)"],
    "p": [
        "($i, $i)",
        "tuple($l)",
        "(*@p[:2], $i)",
        "tuple(x + 1 for x in @p)",
        "@p[:2] + ($i, 1)",
        "(@i, *@l)[:4]",
        "tuple(@t.shape)",
        "divmod($i, 3)",
    ],
    "o": [
        "Base($i)",
        "Derived($i, y=$i)",
        "Derived.make($i)",
        "Slots($i)",
        "@o",
        "Point($i)",
        "Point($i, @t).moved($i)",
        "Point(x=$i, items=@l)",
        "max(Base($i), Base($i))",
        "(lambda kind: kind($i))($(Base Derived))",
    ],
    "r": ["Pair(@t, $i)", "@r._replace(right=$i)", "Pair(left=$t, right=$i)", "Pair(*(@t, @i))", "@r"],
    "t": [
        "($t $(+ - *) $t)",
        "($t $(+ - * /) $(@i 2 0.5))",
        "($i - $t)",
        "($f * $t)",
        "($t + $v)",
        "torch.$(sin relu tanh abs sigmoid neg)($t)",
        "$t.clamp(-2, $(2 @i))",
        "torch.where($k, $t, $t)",
        "torch.stack([$t, $t]).sum(dim=0)",
        "$t.flip(0)",
        "$t.softmax(-1)",
        "torch.cat([@t[:1], @t[1:]])",
        "@t.t().contiguous().t()",
        "@t.view(-1, 3)",
        "@t.reshape(@t.shape)",
        "@t[:]",
        "@t.max().expand(1, 3)",
        "sum([$t, $t])",
        "functools.reduce(torch.add, @L, @t)",
        "@L[$(0 -1 @i)]",
        "@D[$('x' 'y')]",
        "@D.get('x', @t)",
        "$t.to(torch.$(float32 float64))",
        "$t.float()",
        "@m($t)",
        "@m(@t, scale=$i)",
        "@m.layer(@t)",
        "mix($t, $t)",
        "mix(@t, @t, $i, scale=$i)",
        "down($(0 1 2), $t)",
        "@o.grow($t)",
        "@r.left",
        "($t if $b else $t)",
        "torch.zeros_like(@t)",
        "torch.full((@t.shape[0], 3), $i, dtype=@t.dtype)",
        "(@j * 0.5)",
        "@j.float()",
        "$t.cumsum(0)",
        "$t.masked_fill(@k, $i)",
        "$t.mean(0, keepdim=True)",
        "($t - $t.amax(-1, keepdim=True))",
        "@t.clone()",
        "@t.detach()",
        "@t.index_select(0, torch.arange(@t.shape[0]))",
        "torch.nn.functional.layer_norm($t, (3,))",
        "torch.nn.functional.relu(@t, inplace=False)",
        "(@t @ @t.t() @ @t) * 0.125",
        "@t.chunk(1)[0]",
        "torch.stack([x for x in @t])",
        "torch.stack([t.sum(0) for t in @L] + [@v])",
        "torch.maximum(@t, @t)",
        "[$t, $t][$i % 2]",
        "@t.transpose(0, 1).transpose(0, 1)",
        "@t.sort(dim=-1).values",
        "@t.max(dim=-1, keepdim=True)[0].expand(-1, 3)",
        "torch.tensor([[$i, $f, 1.0]])",
        "@t.new_ones(@t.shape[0], 3)",
        "weight + @t",
        "-@t",
        "@t ** 2",
        "@t",
        "@t.roll(1, 0)",
    ],
    "v": [
        "@t.sum(0)",
        "@t[0]",
        "@t[-1]",
        "($v $(+ - *) $v)",
        "$v * $i",
        "weight",
        "@t.mean(0)",
        "torch.tensor([$i, 1.0, $f])",
        "@v.clone()",
        "@m.seen",
        "@t.diagonal()[:3] if @t.shape[0] >= 3 else @v",
        "torch.arange(3.0) + $i",
        "@v[torch.tensor([2, 0, 1])]",
        "@v.unsqueeze(0).squeeze(0)",
        "@t.amax(0)",
    ],
    "j": [
        "($j $(+ - *) $(@i 2 @j))",
        "(@j $(// %) $(2 3 @i))",
        "@t.long()",
        "@j.clamp(0, $i)",
        "torch.where(@k, @j, 0)",
        "@k.long()",
        "(@j & 3)",
        "@j.argsort(-1)",
        "torch.full_like(@j, $i)",
        "@j.cumsum(1)",
        "@j.abs()",
        "@j.flip(-1)",
    ],
    "k": [
        "($t $(> < >=) $(0 @i @t @v))",
        "(~@k)",
        "(@k & @k)",
        "(@k | (@t > 1))",
        "(@j % 2 == 0)",
        "torch.isfinite(@t)",
    ],
    "L": [
        "[$t, $t]",
        "[t + $i for t in @L]",
        "list(@t.split(1))[:2]",
        "@L[:2]",
        "@L + [$t]",
        "list(@D.values())",
        "[t for t in @L if t.shape[0] > 1]",
        "[torch.relu(t) for t in @L]",
        "list(map(torch.sin, @L))",
        "[@t] * 2",
        "sorted(@L, key=lambda t: t.shape[0])",
        "[*@L][::-1]",
    ],
    "D": [
        "{'x': $t, 'y': $t}",
        "{k: v * 2 for k, v in @D.items()}",
        "dict(@D, x=$t)",
        "{**@D, 'z': $t}",
        "{k: @D[k] for k in sorted(@D)}",
        "dict(zip(('x', 'y'), @L))",
    ],
    "m": ["@m", "net"],
}

STATEMENTS: dict[str, tuple[int, list[str]]] = {
    "assign": (4, ["&i = $i", "&l = $l", "&d = $d", "&s = $s", "&o = $o", "&f = $f", "&q = $q", "&p = $p", "&r = $r"]),
    "tensor": (6, ["&t = $t", "&t = $t", "&t = $t", "&v = $v", "&j = $j", "&k = $k", "&L = $L", "&D = $D"]),
    "in place": (
        3,
        [
            "@t += $(@i @t @v 0.5)",
            "@t *= 2",
            "@t -= $t",
            "@t.$(mul_ add_ sub_)($(2 @i @v @t))",
            "@t[0] = $i",
            "@t[$(0 -1 1: :1)] $(= += *=) $(@i @v 2.0)",
            "@t[:, $(0 1)] = $i",
            "@t[@k] = $i",
            "@t.zero_()",
            "@t.relu_()",
            "@t.fill_($i)",
            "@t.copy_($t)",
            "@t.clamp_(-1, 1)",
            "@t.t().mul_(2)",
            "@t.view(-1)[0] = $i",
            "@v += $i",
            "@v[1] = $i",
            "@v.add_(@v)",
            "@j += $i",
            "@j[0, 0] = $i",
            "@t.masked_fill_(@k, $i)",
            "torch.add(@t, 1, out=@t)",
            "torch.nn.functional.relu(@t, inplace=True)",
            "@m.seen += 1",
            "@m.seen.add_($v)",
            "@m.seen = $v",
            "for x in @L: x.mul_(2)",
            "weight.mul_(1)",
        ],
    ),
    "augmented": (
        2,
        [
            "@i $(+= -= ^= |=) $i",
            "@l += [$i]",
            "@l[0] += $i",
            "@o.x -= $i",
            "@o.items += [$i]",
            "@d |= {'a': $i}",
            "@d['a'] += $i",
            "@f += $i",
            "@s += 'y'",
            "@p += (1,)",
            "@q |= {$i}",
            "@o.double = $i",
            "@m.factor += 1",
            "@L += [$t]",
        ],
    ),
    "list": (
        2,
        [
            "@l.append($i)",
            "@l.extend([$i, 1])",
            "@l.insert(1, $i)",
            "@l.pop()",
            "@l[-1] = $i",
            "del @l[:1]",
            "@l.reverse()",
            "@l.sort()",
            "@l.sort(key=lambda x: -x)",
            "@l[1:2] = [$i, $i]",
            "@l.remove($i)",
            "@l.clear()",
            "@l[:] = $l",
            "@L.append($t)",
            "@L[0] = $t",
            "@L.pop()",
            "@o.items.append($i)",
            "del @l[$i]",
        ],
    ),
    "dict": (
        2,
        [
            "@d['a'] = $i",
            "@d.update({'b': $i})",
            "@d.update(a=$i)",
            "@d.pop('a', None)",
            "del @d['b']",
            "@d.setdefault('k', $i)",
            "@d.popitem()",
            "@d[@s] = $i",
            "@D['x'] = $t",
            "@D['y'] += 1",
            "del @D['x']",
            "@D.update(z=$t)",
            "table['b'] = $i",
            "@q.add($i)",
            "@q.discard($i)",
            "@q.update($l)",
            "@d.clear()",
        ],
    ),
    "object": (
        2,
        [
            "@o.x = $i",
            "@o.items = $l",
            "@o.extra = @l",
            "@o.bump($i)",
            "setattr(@o, 'y', $i)",
            "@o.friend = @o",
            "@o.t = $t",
            "del @o.x",
            "@o[0] = $i",
            "@o.__dict__['x'] = $i",
            "@m.factor = $i",
            "@m.cache = $t",
            "Base.scale = $i",
            "@m.train($b)",
            "delattr(@o, $('y' 'x'))",
            "@o.__class__ = Base",
        ],
    ),
    "output": (2, ["print($(@i @l @s @d @f))", "print('shape', tuple(@t.shape), sep='=')", "print(@t)", "talk($i)"]),
    "global": (
        2,
        [
            "counter += 1",
            "counter = $i",
            "log.append($i)",
            "ratio = $f",
            "flag = $b",
            "weight = $v",
            "table = {'a': $i, 'b': 2}",
            "log.append(@t)",
            "log.append(@l)",
            "bump_total($i)",
        ],
    ),
    "unpack": (
        2,
        [
            "@i, &i = $i, @i",
            "&i, *_ = $l",
            "&i, &i = $p",
            "*&l, &i = @l",
            "(&i, (&i, &s)) = $i, ($i, 'u')",
            "&t, &i = @r",
            "&i, &i = @t.shape",
            "&t, &t = $t, $t",
            "&t, *_ = @L",
            "&i = &i = $i",
            "[&i, &i] = sorted(@p)[:2]",
            "&t, &j = @t.max(dim=-1, keepdim=True)",
        ],
    ),
    "other": (
        1,
        [
            "del @i1; &i1 = $i",
            "assert $b, $s",
            "if $b: raise Stop2($i)",
            "if $b: raise $(ValueError KeyError RuntimeError)($i)",
            "if $b: return $(@i @t None @l)",
            "pass",
            "&i: int = $i",
            "import math as other_math; &i = other_math.floor($f)",
            "for x in @l: pass",
            "for &i1 in @l: log.append(@i1)",
            "for &s, &i in @d.items(): pass",
            "for &t in @L: pass",
            "for &v in @t: pass",
            "g# = lambda x: x + @i\n&l = [g#($i), g#(1)]",
            "torch.manual_seed($i)",
            "&i = @t.data_ptr() == @t.data_ptr()",
            "kept.append(lambda n: n + @i)",
            "kept.append(adder($i))",
            "kept.append(functools.partial(helper, $i))",
            "kept.append(@o.bump)",
        ],
    ),
    "branch": (
        4,
        [
            "if $b:\n    $block",
            "if $b:\n    $block\nelse:\n    $block",
            "if $b:\n    $block\nelif $b:\n    $block\nelse:\n    $block",
            "if @t.sum() > $i:\n    $block\nelse:\n    $block",
        ],
    ),
    "loop": (
        4,
        [
            "for &i in range($(1 2 3)):\n    $body",
            "for &i in range($(1 2 3)):\n    $body\nelse:\n    $block",
            "for x# in $l[:3]:\n    $body",
            "for x#, &i in enumerate($l[:3]):\n    $body",
            "for &i in count_up($(1 2 3)):\n    $body",
            "for &s, x# in list($d.items())[:3]:\n    $body",
            "for &t in @L[:2]:\n    $body",
            "for &i, &t in zip($l, @L):\n    $body",
            "for &i in reversed(@l[:3]):\n    $body",
            "for &i in (x * 2 for x in @l[:3]):\n    $body",
            "w# = 0\nwhile w# < $(1 2 3):\n    w# += 1\n    $body",
            "w# = 0\nwhile w# < $(1 2):\n    w# += 1\n    $body\nelse:\n    $block",
            "for w# in range(3):\n    if @t.sum() > $i: break\n    &t = $t\n    $body",
            "for x# in itertools.product(@l[:2], @l[:2]):\n    $body",
        ],
    ),
    "attempt": (
        4,
        [
            "try:\n    $block\nexcept (ValueError, LookupError) as exc:\n    log.append(repr(exc))\n    $block",
            "try:\n    $block\n    $raise\nexcept KeyError as exc:\n    log.append(exc.args)\nexcept Exception as exc:\n"  # noqa: E501
            "    &s = type(exc).__name__\nelse:\n    $block\nfinally:\n    $block",
            "try:\n    $block\nfinally:\n    $block",
            "try:\n    $block\n    $raise\nexcept ZeroDivisionError:\n    $block\nfinally:\n    log.append('f')",
            "try:\n    try:\n        $raise\n    except Exception as exc:\n        raise Stop2($i) from exc\n"
            "except Stop2 as exc:\n    log.append((str(exc), type(exc.__cause__).__name__))",
            "try:\n    $block\n    $raise\nexcept Exception:\n    $block\n    if $b: raise",
            "try:\n    &i = risky($i)\nexcept ValueError as exc:\n    &i = len(exc.args)",
            "try:\n    $block\nexcept RuntimeError as exc:\n    log.append(type(exc).__name__)",
        ],
    ),
    "context": (
        3,
        [
            "with managed(@l, $i):\n    $block",
            "with managed(log, $i) as &i:\n    $block",
            "with @o:\n    $block",
            "with Base($i) as &o, managed(log, 'm'):\n    $block",
            "with torch.no_grad():\n    $block",
            "with contextlib.suppress(ValueError, KeyError):\n    $block\n    $raise",
            "with contextlib.ExitStack() as stack#:\n    stack#.callback(log.append, $i)\n    $block",
            "with contextlib.nullcontext($i) as &i:\n    $block",
            "with torch.autocast('cpu', dtype=torch.bfloat16, enabled=$(True False)):\n    &t = @m(@t)\n&t = @t.float()",  # noqa: E501
            "with torch.set_grad_enabled($b):\n    $block",
        ],
    ),
    "closure": (
        4,
        [
            "def inner#(x, y=$i):\n    return x * y + @i\n@l.append(inner#($i))",
            "def inner#(x):\n    nonlocal @i1\n    @i1 = (@i1 + x) % 29\n    return @i1\ninner#($i)\n&i = inner#(1)",
            "def inner#(x):\n    @l.append(x)\n    return len(@l)\n&i = inner#($i)\nkept.append(inner#)",
            "def inner#(u):\n    $scope\n    return u + @t\n&t = inner#($t)",
            "def inner#(n=0):\n    nonlocal @t1\n    @t1 = @t1 * 2\n    return n\nkept.append(inner#)\n&i = inner#($i)",
            "def inner#(n):\n    return @i if n <= 0 else inner#(n - 1) + 1\n&i = inner#($(0 1 2 3))",
            "def gen#():\n    $scope\n    yield @i\n    yield $i\n&l = list(gen#())",
            "def gen#(n):\n    for x# in range(n):\n        yield @t * x#\n&L = [u for u in gen#($(1 2))]",
            "def outer#():\n    z# = $i\n    def read(k=1): return z# + k\n    def write(n):\n        nonlocal z#\n"
            "        z# = n\n        return n\n    return read, write\nread#, write# = outer#()\nwrite#($i)\n"
            "&i = read#()\nkept.append(read#)\nkept.append(write#)",
            "class Local#(Base):\n    y = @i\n    def bump(self, n=1):\n        return super().bump(n) + @i\n&o1 = Local#($i)\n&i = @o1.bump(1)",  # noqa: E501
            "@decorate\ndef inner#(x):\n    return x + @i\n&i = inner#($i)",
        ],
    ),
    "match": (
        1,
        [
            "match $(@l @p @i @d @o @s):\n    case [x#, *_] if x# > 1:\n        $block\n    case int():\n        $block\n"  # noqa: E501
            "    case {'a': x#}:\n        &i = x#\n    case Base(x=x#):\n        $block\n    case 'ab' | 'xyz':\n        $block\n"  # noqa: E501
            "    case _:\n        $block"
        ],
    ),
}

STATEMENTS_IN_LOOPS = ["if $b: $(break continue)", "if $b: continue\n&t = $t", "if @t.sum() > $i: $(break continue)"]
RAISES = ["raise KeyError($i)", "raise ValueError('v')", "@l[99]", "@d['none']", "1 // 0", "raise Stop2($i)",
          "if $b: raise RuntimeError('r', $i)", "@t + torch.ones(7)", "@o.missing", "int('x')", "pass"]  # fmt: skip
