"""What the state machine calls and changes: subjects, each a function with the knobs that its result depends on."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SUBJECTS", "WORLD", "Subject"]


@dataclass(frozen=True, slots=True)
class Subject:
    """A function, and what can be changed between its calls.

    Args:
        name: Of the function in `WORLD`.
        call: Statement that calls `run`, the function compiled or not, and binds `result`.
        knobs: Name -> statements, one for each of its values.
        functional: Whether its cases run functionalized always: what they look for can't be seen in a graph as written.
    """

    name: str
    call: str
    knobs: dict[str, tuple[str, ...]]
    functional: bool = False


WORLD = """
import collections, contextlib, functools
import torch
from torch.overrides import TorchFunctionMode

def T(n, seed=0, dtype=torch.float32):
    return ((torch.arange(n * 3).reshape(n, 3) * (seed + 3) % 11 - 5) / 4).to(dtype)

class Thing:
    scale = 2
    def __init__(self):
        self.x, self.items, self.inner = 1, [1, 2], None
    def apply(self, t):
        return t * self.scale + self.x
    @property
    def double(self):
        return self.x * 2

class Other(Thing):
    def apply(self, t):
        return t - self.x

class Marked: ...

class Derived(Thing): ...

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.layers = torch.nn.Linear(3, 3), torch.nn.ModuleList([torch.nn.Linear(3, 3), torch.nn.ReLU()])
        self.drop, self.norm = torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(3)
        self.register_buffer("shift", torch.ones(3))
        self.factor, self.table = 2, {"a": 1}
        with torch.no_grad():
            for number, p in enumerate(self.parameters()):
                p.copy_((torch.arange(float(p.numel())).reshape(p.shape) % 5 - 2) / 4 + number / 8)
        self.requires_grad_(False)
    def forward(self, x):
        x = self.layer(x) * self.factor + self.shift
        for layer in self.layers:
            x = layer(x)
        if "b" in self.table:
            x = x + self.table["b"]
        return self.norm(x) if self.training else x + self.table["a"]

class Doubling(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result * 2 if function in (torch.Tensor.add, torch.add) else result

MARK = object()
ZERO, ONE = (lambda t: t), (lambda t: t + 1)
def helper(t, by=2): return t * by
def helper_a(t, by=2): return t * by
def helper_b(t, by=2): return t - by
def keyword(t, *, by=3): return t / by
def make_cell():
    cell = 1
    def read(t): return t * cell
    def write(value):
        nonlocal cell
        cell = value
    return read, write
read, write = make_cell()
def twice(t): return t * 2
def thrice(t): return t * 3
def doubled_hook(module, args, out): return out * 2
def pre_hook(module, args): return (args[0] + 1,)

# what the knobs set
rows, columns, dtype, needs, strided, alias, seed = 2, 3, torch.float32, False, False, 0, 0
number, ratio, word, other, option, count, key = 1, 0.5, "a", None, True, 2, 0
level, flag, chosen, table, pair = 1, True, twice, {"a": 1, "b": 2}, (1, 2)
contexts, kind, calm = [], list, True
thing, net, held = Thing(), Net(), MARK
holder, derived = Thing(), Derived()
handles = {}

def value(seed=0):
    t = T(rows, seed, dtype)[:, :columns]
    t = t.t().contiguous().t() if strided else t.contiguous()
    return t.requires_grad_(needs) if t.is_floating_point() else t

@contextlib.contextmanager
def entered():
    with contextlib.ExitStack() as stack:
        for make in contexts:
            stack.enter_context(make())
        yield

def within(calm, function, *args):
    if calm:
        return function(*args)
    try:
        raise ValueError
    except ValueError:
        return function(*args)

# ---- subjects

def handling(x):
    try:
        raise KeyError
    except KeyError as error:
        seen = error.__context__
    return x + 1 if seen is None else x - 1

def tensors(x, y):
    z = x * 2 + y
    if x.requires_grad:
        z = z + 100
    return z, z.stride(), z.dtype

def reduced(x):
    return x.sum(0), x.reshape(-1), x.t().contiguous(), x.shape[0] * x

def aliased(x, y):
    x.add_(1)
    z = x * y
    return z, x is y

def overlapping(x, y):
    x.mul_(2)
    y.add_(x.sum())
    return x + 1, y * 3

def sized(x):
    if x.shape[0] > 4:
        return x * 2 + x.shape[0]
    return x.view(-1, 3).sum(0) - x.shape[0]

def joined(x, y):
    return torch.cat([x, y]).sum(0) + x.shape[0], x.shape[0] == y.shape[0]

def sides(t, by):
    return t * by if by > 1 else t - by

def scalars(x, n, f, s, o, p, flag=True):
    z = x * n + f
    if s == "a": z = z + 1
    if o is not None: z = z + o
    if not flag: z = -z
    return z + p[0], n, s

def containers(x, ts, d, names):
    z = x
    for place, t in enumerate(ts): z = z + t * (place + 1)
    for place, (k, v) in enumerate(d.items()): z = z * (place + 2) + v
    if "extra" in d: z = z + 1000
    return z + d.get("missing", 0) + len(names), list(d), ts + ts[:0], d | {}

def objects(x):
    z = thing.apply(x) + thing.double
    if hasattr(thing, "extra"): z = z + 10
    z = z + getattr(thing, "bonus", 0)
    if thing.inner is not None: z = z + 7
    if held is not MARK: z = z - 50
    if isinstance(derived, Marked): z = z + 30
    return z + len(thing.items) + sum(thing.items) + thing.__dict__.get("note", 0)

def functions(x):
    z = helper(x) + keyword(x)
    return read(z) + chosen(x) * level + (1 if flag else 0) + table["a"], table.get("c")

def partials(x, f):
    return f(x) + 1

def module(x):
    return net(x) + 1

def modes(x):
    z = torch.add(x, 1)
    z = torch.mm(z, z.t())
    w = torch.ones(2) + torch.tensor(1.5)
    y = x * 2 if torch.is_grad_enabled() else x * 3
    if torch.is_inference_mode_enabled(): y = y + 9
    if torch.are_deterministic_algorithms_enabled(): y = y + 5  # a break
    return z, w, y, z.dtype

def plain_modes(x):
    return torch.mm(x, x.t()), torch.tensor(0.5) + 1, torch.relu(x)

def broken(x, n):
    z = x * n
    if z.sum() > 0:
        z = z + thing.x
    print("sum", tuple(z.shape))
    return z * level
"""

_SHAPES = {
    "rows": ("rows = 2", "rows = 4"),
    "columns": ("columns = 3", "columns = 2"),
    "dtype": ("dtype = torch.float32", "dtype = torch.float64", "dtype = torch.int64"),
    "stride": ("strided = False", "strided = True"),
    "requires_grad": ("needs = False", "needs = True"),
}
_CONTEXTS = {
    "grad mode": ("contexts = []", "contexts = [torch.no_grad]", "contexts = [torch.enable_grad]"),
    "inference mode": ("contexts = [torch.no_grad]", "contexts = [torch.inference_mode]"),
    "autocast": (
        "contexts = []",
        "contexts = [lambda: torch.autocast('cpu', torch.bfloat16)]",
        "contexts = [lambda: torch.autocast('cpu', torch.float16)]",
    ),
    "torch modes": ("contexts = []", "contexts = [Doubling]"),
}
_FLAGS = {
    "default dtype": ("torch.set_default_dtype(torch.float32)", "torch.set_default_dtype(torch.float64)"),
    "deterministic": ("torch.use_deterministic_algorithms(False)", "torch.use_deterministic_algorithms(True)"),
}
_MODULE = {
    "train": ("net.train()", "net.eval()"),
    "module attribute": ("net.factor = 2", "net.factor = 3"),
    "buffer": ("net.shift = torch.ones(3)", "net.shift = torch.zeros(3)", "net.shift = torch.ones(1)"),
    "parameter": (
        "net.layer.weight = torch.nn.Parameter(torch.eye(3), False)",
        "net.layer.weight = torch.nn.Parameter(torch.ones(3, 3, dtype=torch.float32), False)",
    ),
    "parameter data": ("net.layer.weight.data = torch.eye(3)", "net.layer.weight.data = torch.ones(3, 3).t()"),
    "bias": ("net.layer.bias = torch.nn.Parameter(torch.ones(3), False)", "net.layer.bias = None"),
    "submodule": ("net.layers[1] = torch.nn.ReLU()", "net.layers[1] = torch.nn.Tanh()"),
    "modules": ("net.layers = torch.nn.ModuleList([torch.nn.ReLU()])",
                "net.layers = torch.nn.ModuleList([torch.nn.ReLU(), torch.nn.Tanh()])"),
    "hook": ("handles.pop('h').remove() if 'h' in handles else None",
             "handles.setdefault('h', net.layer.register_forward_hook(doubled_hook) if 'h' not in handles else None)"),
    "pre hook": ("handles.pop('p').remove() if 'p' in handles else None",
                 "handles.setdefault('p', net.register_forward_pre_hook(pre_hook) if 'p' not in handles else None)"),
    "dict of a module": ("net.table = {'a': 1}", "net.table = {'a': 1, 'b': 2}", "net.table['a'] = 4"),
    "forward": ("vars(net).pop('forward', None)", "net.forward = lambda x: x * 4"),
}  # fmt: skip
_OBJECTS = {
    "attribute": ("thing.x = 1", "thing.x = 5", "thing.x = 2.5"),
    "class": ("thing.__class__ = Thing", "thing.__class__ = Other"),
    "class attribute": ("Thing.scale = 2", "Thing.scale = 3"),
    "object": ("thing = Thing()", "thing = Other()"),
    "method": ("vars(thing).pop('apply', None)", "thing.apply = lambda t: t * 6"),
    "has attribute": ("vars(thing).pop('extra', None)", "thing.extra = 1"),
    "getattr": ("vars(thing).pop('bonus', None)", "thing.bonus = 3"),
    "inner": ("thing.inner = None", "thing.inner = holder"),
    "bases": ("Derived.__bases__ = (Thing,)", "Derived.__bases__ = (Marked, Thing)"),
    "marked": ("held = MARK", "held = Thing()", "held = None"),
    "list": ("thing.items = [1, 2]", "thing.items = [1, 2, 3]", "thing.items[0] = 4"),
    "instance dict": ("vars(thing).pop('note', None)", "thing.note = 8"),
    "property": (
        "Thing.double = property(lambda self: self.x * 2)",
        "Thing.double = property(lambda self: self.x * 4)",
    ),
}
_FUNCTIONS = {
    "code": ("helper.__code__ = helper_a.__code__", "helper.__code__ = helper_b.__code__"),
    "default": ("helper.__defaults__ = (2,)", "helper.__defaults__ = (5,)"),
    "keyword default": ("keyword.__kwdefaults__ = {'by': 3}", "keyword.__kwdefaults__ = {'by': 4}"),
    "cell": ("write(1)", "write(3)", "write(torch.tensor(2.0))"),
    "global function": ("chosen = twice", "chosen = thrice", "chosen = lambda t: t"),
    "global int": ("level = 1", "level = 4"),
    "global bool": ("flag = True", "flag = False"),
    "global dict": ("table = {'a': 1, 'b': 2}", "table = {'b': 2, 'a': 3}", "table['c'] = 1", "table['a'] = 9"),
    "shadowed": ("globals().pop('len', None)", "len = sum"),
}

SUBJECTS = (
    Subject("tensors", "result = run(value(), value(1))", {**_SHAPES, "grad mode": _CONTEXTS["grad mode"]}),
    Subject("reduced", "result = run(value())", _SHAPES),
    Subject(
        "handling",
        "result = within(calm, run, value())",
        {"calm": ("calm = True", "calm = False"), "rows": _SHAPES["rows"]},
    ),
    Subject(
        "aliased",
        "x = value(); y = (x, value(1), x.clone())[alias]; result = run(x, y)",
        {"alias": ("alias = 0", "alias = 1", "alias = 2"), "rows": _SHAPES["rows"], "stride": _SHAPES["stride"]},
    ),
    Subject(
        "overlapping",
        "base = T(6); x = base[:4]; y = (T(4), base[2:], base[:4], base.view(-1)[:3])[alias]; result = run(x, y), base",
        {"alias": ("alias = 0", "alias = 1", "alias = 2", "alias = 3")},
        functional=True,
    ),
    Subject("sized", "result = run(T(rows))", {"rows": tuple(f"rows = {n}" for n in (2, 3, 4, 5, 6, 9, 1, 0))}),
    Subject(
        "joined",
        "result = run(T(rows), T(count))",
        {"rows": ("rows = 2", "rows = 3", "rows = 5"), "count": ("count = 2", "count = 3", "count = 7")},
    ),
    Subject(
        "scalars",
        "result = run(value(), number, ratio, word, other, pair, flag=option)",
        {
            "int": ("number = 1", "number = 2", "number = True", "number = 0"),
            "float": ("ratio = 0.5", "ratio = 1.5", "ratio = -0.0", "ratio = 2"),
            "str": ("word = 'a'", "word = 'b'"),
            "none": ("other = None", "other = 3", "other = torch.ones(3)"),
            "bool": ("option = True", "option = False"),
            "tuple": ("pair = (1, 2)", "pair = (2, 2)", "pair = (1, 2, 3)"),
            "rows": _SHAPES["rows"],
        },
    ),
    Subject(
        "sides",
        "result = run(value(), ratio)",
        {"float": ("ratio = 0.5", "ratio = 0.25", "ratio = 1.0", "ratio = 1.5", "ratio = 2.5", "ratio = -0.0")},
    ),
    Subject(
        "containers",
        "tensors_now = [value(n) for n in range(count)]\n"
        "keys = ({'a': 1, 'b': 2}, {'b': 1, 'a': 2}, {'a': 1}, {'a': 1, 'b': 2, 'extra': 0}, {'a': 5, 'b': 2},"
        " collections.OrderedDict(a=1, b=2))[key]\n"
        "result = run(value(), kind(tensors_now), dict(keys) if type(keys) is dict else keys, 'ab'[:seed])",
        {
            "length": ("count = 2", "count = 3", "count = 0"),
            "dict": tuple(f"key = {n}" for n in range(6)),
            "text": ("seed = 0", "seed = 2"),
            "kind": ("kind = list", "kind = tuple"),
        },
    ),
    Subject("objects", "result = run(value())", _OBJECTS),
    Subject("functions", "result = run(value())", _FUNCTIONS),
    Subject(
        "partials",
        "result = run(value(), (twice, thrice, functools.partial(helper, by=number), functools.partial(helper_b, by=3),"
        " torch.relu, thing.apply)[key])",
        {"callable": tuple(f"key = {n}" for n in range(6)), "int": ("number = 1", "number = 2")},
    ),
    Subject("module", "result = run(value())", _MODULE),
    # its tensor is made outside of the modes: one made in inference mode is told by itself
    Subject("modes", "x = value()\nwith entered(): result = run(x)", {**_CONTEXTS, **_FLAGS, "rows": _SHAPES["rows"]}),
    Subject(
        "plain_modes", "with entered(): result = run(value())", {**_CONTEXTS, **_FLAGS, "dtype": _SHAPES["dtype"][:2]}
    ),
    Subject(
        "broken",
        "result = run(value(seed), number)",
        {
            "int": ("number = 1", "number = -2"),
            "attribute": _OBJECTS["attribute"],
            "global int": _FUNCTIONS["global int"],
            "rows": _SHAPES["rows"],
            "sign": ("seed = 0", "seed = 1"),
        },
    ),
)
