"""tuple, namedtuple, list, dict, OrderedDict, set, range, slice."""

from __future__ import annotations

import collections
import threading
from collections import OrderedDict
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch import randn

from integration.python.program import program


@program("tuple", lambda: ((randn(2), randn(2)),))
def swap_pair(pair):
    a, b = pair
    a, b = b * 2, a
    return (a, b) + pair[:1], len(pair * 2), pair[-1] is b, (1, "a") == (1, "a", 2)[:2]


@program("tuple", lambda: (randn(2, 3, 4),))
def move_axis(x):
    order = tuple(range(x.dim()))
    order = order[1:] + order[:1]
    first, *rest = order
    return x.permute(*order), (first, rest), order.index(2), order.count(0), (1, 2) < order


Scored = collections.namedtuple("Scored", "tokens score", defaults=(0.0,))


class Cache(NamedTuple):
    """Keys and values of one layer."""

    key: torch.Tensor
    value: torch.Tensor
    length: int = 0

    def append(self, k, v):
        key, value = torch.cat([self.key, k], 1), torch.cat([self.value, v], 1)
        return self._replace(key=key, value=value, length=key.shape[1])


@program("namedtuple", lambda: (Cache(randn(2, 3, 4), randn(2, 3, 4), 3), randn(2, 1, 4)))
def grow_a_cache(cache, x):
    grown = cache.append(x, x * 2)
    return grown, grown.length - cache.length, grown._fields


@program("namedtuple", lambda: (randn(4, 5),))
def best_of_each(x):
    top = x.topk(2, dim=-1)
    return Scored(top.indices, top.values), Scored(tokens=top[1]).score, x.max(0).values


@program("list", lambda: ([randn(2), randn(2), randn(2)],))
def prefix_sums(items):
    out = []
    for item in items:
        out.append(item if not out else out[-1] + item)
    out[0], tail = out[0] * 2, out.pop()
    return out, tail, len(items)


@program("list", lambda: (randn(3),))
def list_operations(x):
    items = [x, x + 1] * 2
    items.insert(1, x * 2)
    items.extend(v for v in (x - 1, x - 2))
    del items[0]
    items[1:3] = [x]
    items.reverse()
    order = [3, 1, 2]
    order.sort(reverse=True)
    return items, items[-1] is x, order, order.index(1), [[]] * 2


@program("list", lambda: (randn(6, 2),))
def work_queue(x):
    pending, done = [(x, 0)], []
    while pending:
        part, depth = pending.pop()
        if part.shape[0] == 1 or depth == 2:
            done.append(part.sum())
        else:
            half = part.shape[0] // 2
            pending += [(part[:half], depth + 1), (part[half:], depth + 1)]
    return torch.stack(done)


@program("dict", lambda: ({"input_ids": torch.arange(4), "mask": randn(4)},))
def batch_of_features(batch):
    out = {key: value.unsqueeze(0) for key, value in batch.items()}
    out["length"] = out["input_ids"].shape[-1]
    out.setdefault("mask", None)
    extra = out.pop("labels", "none")
    return {**out, "extra": extra}, "labels" in out, list(out)


@program("dict", lambda: (["the", "cat", "the", "end"],))
def tokenizer_like(words):
    vocabulary = {"<unk>": 0}
    for word in words:
        vocabulary.setdefault(word, len(vocabulary))
    inverse = {number: word for word, number in vocabulary.items()}
    ids = [vocabulary.get(word, vocabulary["<unk>"]) for word in words + ["dog"]]
    return torch.tensor(ids) * 2, inverse, vocabulary | {"<pad>": -1}


@program("dict", lambda: (randn(3), {"scale": 2.0, "shift": {"by": 1.0}}))
def nested_config(x, config):
    defaults = {"scale": 1.0, "clamp": None, "shift": {}}
    merged = defaults | config
    x = x * merged["scale"] + merged["shift"].get("by", 0.0)
    if merged["clamp"]:
        x = x.clamp(*merged["clamp"])
    return x, sorted(merged), merged == config, dict(zip("ab", (1, 2)))


@program("dict", lambda: ([("a", randn(2)), ("b", randn(2)), ("a", randn(2))],))
def group_by_key(pairs):
    groups = collections.defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return {key: torch.stack(values).sum(0) for key, values in groups.items()}


@program("OrderedDict", lambda: (randn(2),))
def ordered_stages(x):
    stages = collections.OrderedDict(double=lambda v: v * 2, negate=torch.neg)
    stages["shift"] = lambda v: v + 1
    stages.move_to_end("double")
    outputs = collections.OrderedDict()
    for name, stage in stages.items():
        x = outputs[name] = stage(x)
    return outputs


@program("OrderedDict", lambda: (collections.OrderedDict(a=randn(2), b=randn(2), c=randn(2)),))
def evict_the_oldest(cache):
    name, oldest = cache.popitem(last=False)
    cache["d"] = oldest * 2
    return name, list(cache), sum(cache.values())


@program("set", lambda: ([3, 1, 3, 2, 1], randn(4)))
def unique_positions(indices, x):
    seen = set()
    kept = [i for i in indices if not (i in seen or seen.add(i))]
    return x[torch.tensor(kept)], seen, seen.isdisjoint({7}), min(seen)


@program("range", lambda: (randn(6, 2),))
def chunks_by_range(x):
    starts = range(0, x.shape[0], 4)
    return [x[s : s + 4].mean(0) for s in starts], len(starts), 4 in starts, starts[-1], list(reversed(starts))


@program("range", lambda: (randn(3), range(2, 9, 3)))
def range_as_an_argument(x, steps):
    for step in steps:
        x = x + step
    return x, steps.start, steps.step, steps[1:], steps == range(2, 10, 3)


@program("slice", lambda: (randn(4, 6),))
def slices_by_name(x):
    parts = {"q": slice(0, 2), "k": slice(2, 4), "v": slice(4, None)}
    q, k, v = (x[:, part] for part in parts.values())
    return (q * k).sum(-1, keepdim=True) * v, parts["v"].start, slice(1, 9, 2).indices(6)


@program("slice", lambda: (randn(2, 3, 4),))
def slice_of_any_axis(x):
    def take(v, axis, part):
        index = [slice(None)] * v.dim()
        index[axis] = part
        return v[tuple(index)]

    return take(x, 1, slice(None, -1)) - take(x, 1, slice(1, None)), x[..., ::2], x[None, :, 0]


@program("set", lambda: (randn(3), {"bias"}))
def set_grows_by_one(x, enabled):
    if "bias" in enabled and not enabled.issuperset({"scale"}):
        x = x + 1
    enabled.add("scale")
    copied = set(enabled)
    copied.discard("bias")
    return x * len(enabled), copied, enabled - copied


@program("set", lambda: (randn(3), {"dropout", "norm"}))
def set_of_options(x, options):
    known = {"norm", "bias", "scale"}
    unknown = options - known
    if "norm" in options & known:
        x = x / x.norm()
    options.add("seen")
    return x, "dropout" in unknown, options <= known, len(known | options), frozenset("ab") == {"a", "b"}


@program("sorted", lambda: (randn(3), {"norm", "scale", "bias"}))
def sorted_set(x, names):
    for i, name in enumerate(sorted(names | {"extra"})):
        x = x * len(name) + i
    return x, sorted({3, 1, 2})


@program("dict", lambda: (["a", "b", "a"], randn(2)))
def count_words(words, x):
    counts = collections.Counter(words)
    return x * counts["a"], counts.most_common(1), counts["missing"]


@program("OrderedDict", lambda: (randn(3), OrderedDict(a=1, b=2, c=3)))
def to_the_front(x, order):
    order.move_to_end("b", last=False)
    made = OrderedDict(x=x, y=x * 2)
    made.move_to_end("y", last=False)
    return made, list(order)


@program("dict", lambda: (randn(3), {"a": 1, "b": 2}, {"b": 2, "c": 3}))
def what_changed_in_a_config(x, old, new):
    kept = old.items() & new.items()
    return x * len(kept), kept, old.items() - new.items(), old.items() ^ new.items(), {("c", 3)} | old.items()


@program("locks", lambda: (randn(3),))
def under_a_new_lock(x):
    with threading.Lock():
        y = x * 2
    lock = threading.RLock()
    with lock, lock:
        y = y + 1
    return y


@program("locks", lambda: (randn(3), {}))
def a_lock_that_is_kept(x, state):
    lock = state.setdefault("lock", threading.Lock())
    taken = lock.acquire()
    again = lock.acquire(blocking=False)
    return x * 2, taken, again, state.pop("lock").locked()


_SCALE: ContextVar[int] = ContextVar("scale", default=2)
_REQUEST: ContextVar[str] = ContextVar("request")


@program("context variable", lambda: (randn(3),))
def scaled_by_a_context_variable(x):
    return x * _SCALE.get(), _SCALE.name


@program("context variable", lambda: (randn(3),), breaks=("tracer.call",))
def a_context_variable_that_is_not_set(x):
    name = _REQUEST.get("nobody")
    return x + len(name)
