"""int, float, bool, str, None, enumerations, f-strings."""

from __future__ import annotations

import enum
import math

import torch
import torch.nn.functional as F
from torch import randn

from integration.python.program import program


@program("int", lambda: (randn(3, 4), 2))
def repeat_heads(x, n_rep):
    batch, width = x.shape
    return x[:, None].expand(batch, n_rep, width).reshape(batch * n_rep, width)


@program("int", lambda: (randn(2, 7), 4))
def pad_to_multiple(x, multiple):
    missing = -x.shape[-1] % multiple
    return F.pad(x, (0, missing)), divmod(x.shape[-1] + missing, multiple)


@program("int", lambda: (randn(8, 8),))
def powers_of_two(x):
    n = x.shape[0]
    levels = n.bit_length() - 1
    for level in range(levels):
        x = x + x.roll(1 << level, 0)
    return x, n & (n - 1) == 0, ~levels, levels**2, n >> 1, n ^ 5


@program("float", lambda: (randn(2, 3, 8), randn(2, 3, 8)))
def scaled_scores(q, k):
    scale = q.size(-1) ** -0.5
    return (q @ k.transpose(-2, -1)) * scale, scale


@program("float", lambda: (randn(5),))
def gelu_by_hand(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


@program("float", lambda: (randn(4), 7))
def cosine_schedule(x, step):
    warmup, total = 3, 10
    if step < warmup:
        rate = step / warmup
    else:
        rate = 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))
    return x * rate, round(rate, 3), rate.is_integer(), float("inf") > rate


@program("bool", lambda: (randn(3, 4), True))
def optional_norm(x, normalize):
    if normalize and x.dim() == 2:
        x = x / x.norm(dim=-1, keepdim=True)
    return x, not normalize


@program("bool", lambda: (randn(3), False, True))
def count_flags(x, first, second):
    n = first + second + (first or second) + (first and second) + (first ^ second)
    return x * n, bool(n), [first, second].index(True)


@program("str", lambda: (randn(3), "leaky-relu"))
def activation_by_name(x, name):
    kind, _, _ = name.upper().replace("-", "_").rpartition("_")
    if name.endswith("relu") and kind.lower() == "leaky":
        return F.leaky_relu(x, 0.1), kind
    return F.relu(x), kind


@program("str", lambda: (randn(2, 3), randn(3, 4), "bd,de->be"))
def small_einsum(x, y, equation):
    left, right = equation.split("->")
    terms = [term.strip() for term in left.split(",")]
    summed = set("".join(terms)) - set(right)
    z = x @ y if summed == {"d"} else x
    return z, sorted(summed), "|".join(terms), equation[::-1], "e" in right


@program("str", lambda: (randn(2),))
def strip_prefixes(x):
    names = ["model.layer.0.weight", "model.layer.1.bias", "head.weight"]
    kept = [n.removeprefix("model.") for n in names if n.startswith("model.")]
    index = [int(n.split(".")[1]) for n in kept if n.split(".")[1].isdigit()]
    return x * sum(index), kept, names[-1].title(), "%s/%03d" % (kept[0], len(kept))


@program("None", lambda: (randn(2, 3), None))
def optional_mask(x, mask):
    if mask is not None:
        x = x.masked_fill(mask, float("-inf"))
    return x.softmax(-1), mask


@program("None", lambda: (randn(2, 3),))
def default_of_none(x, weight=None, bias=None):
    weight = weight or torch.ones(3)
    out = x * weight
    return out if bias is None else out + bias


class Reduction(enum.Enum):
    """How a loss is reduced."""

    NONE = "none"
    MEAN = "mean"
    SUM = "sum"

    def apply(self, x):
        return {Reduction.NONE: lambda v: v, Reduction.MEAN: torch.mean, Reduction.SUM: torch.sum}[self](x)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Feature(enum.Flag):
    BIAS = enum.auto()
    SCALE = enum.auto()


@program("enum", lambda: (randn(3), Reduction.MEAN))
def reduce_by_enum(x, reduction):
    if reduction is Reduction.NONE:
        return x, reduction.name
    return x.mean() if reduction is Reduction.MEAN else x.sum(), reduction.value


@program("enum", lambda: (randn(3), "sum"))
def enum_from_value(x, name):
    return Reduction(name).apply(x), Reduction["NONE"], [r.value for r in Reduction]


@program("enum", lambda: (randn(3), Feature.BIAS | Feature.SCALE))
def flags_in_a_set(x, features):
    if Feature.SCALE in features:
        x = x * 2
    if features & Feature.BIAS:
        x = x + 1
    return x, features


@program("f-string", lambda: (randn(3, 4),))
def describe_shape(x):
    y = x * 2
    return y, f"{tuple(y.shape)!s:>10} {y.dim()=} {y.dtype}", f"{0.125:.2%}|{255:#06x}|{1234567:,}"


@program("f-string", lambda: ({"layer0.w": randn(2), "layer1.w": randn(2)},))
def keys_by_f_string(state):
    total = 0
    for i in range(2):
        total = total + state[f"layer{i}.w"] * (i + 1)
    return total


@program("f-string", lambda: (randn(2, 3), randn(4, 5)))
def message_of_a_mismatch(x, y):
    width = 6
    message = f"expected {x.shape[-1]:<{width}}got {y.shape[-1]!r}" if x.shape != y.shape else ""
    return x + len(message), message


@program("float", lambda: (randn(2, 5), torch.rand(()).item() + 0.5), calls=4, recompiles=1)
def temperature_that_changes(logits, temperature):
    return torch.softmax(logits / temperature, -1)


@program("enum", lambda: (randn(3), Level.HIGH))
def int_enum_as_number(x, level):
    return x * level + (level > Level.LOW), level + 1


def _whole(n):
    return torch.randint(-9, 9, (n,)).float()


@program("f-string", lambda: (_whole(4),), calls=3)
def text_of_numbers_in_tensors(x):
    total = x.sum()
    before = f"{total:.2f}|{total}"
    total.add_(1)
    shown = "%5.1f %s" % (total.item(), before), f"{total.item():>8} {x[0].item():e}", f"{(x > 0).any()}"
    return x * 2, before, shown, f"{total.long():+d} " + before, ", ".join(f"{v.item():g}" for v in x)


@program("f-string", lambda: (_whole(4),), calls=3, graphs=2, breaks=("tracer.output",))
def report_of_a_step(x):
    loss = (x * x).mean()
    print(f"loss {loss:.4f}")
    return loss * 2


@program("f-string", lambda: (torch.tensor(float("nan")), torch.tensor(2.5)), graphs=1, breaks=("tracer.call",))
def text_that_may_fail(x, y):
    try:
        return f"{y} {x:d}"
    except ValueError as error:
        return f"{y} {x}", str(error), y + 1
