"""Control flow: early return, loops with else, match, walrus, recursion, unpacking, chained comparisons."""

from __future__ import annotations

import dataclasses

import torch
from torch import randn

from integration.python.program import program


@program("control flow", lambda: (randn(3, 4), "mean"))
def early_return(x, how):
    if x.dim() < 2:
        return x
    if how == "sum":
        return x.sum(-1)
    if how == "mean":
        return x.mean(-1)
    raise ValueError(how)


@program("control flow", lambda: (randn(4), [3, 1, 4, 1, 5]))
def loop_with_else_and_break(x, numbers):
    for n in numbers:
        if n == 4:
            x = x * n
            break
        if n == 1:
            continue
        x = x + n
    else:
        x = x - 100
    for _ in ():
        pass
    else:
        x = x + 0.5
    return x


@program("control flow", lambda: (randn(3), ("scale", 2.0)))
def match_on_a_tuple(x, command):
    match command:
        case ("scale", float(factor)):
            return x * factor
        case ("shift", amount) | ("move", amount):
            return x + amount
        case [name, *rest]:
            return x, name, rest
        case _:
            return None


@dataclasses.dataclass
class Node:
    kind: str
    value: float = 1.0


@program("control flow", lambda: (randn(3), [Node("mul", 2.0), {"op": "add", "by": 1.0}, Node("neg"), 7]))
def match_on_objects(x, steps):
    for step in steps:
        match step:
            case Node("mul", value) if value > 0:
                x = x * value
            case Node(kind="neg"):
                x = -x
            case {"op": "add", "by": by, **rest}:
                x = x + by + len(rest)
            case int(n):
                x = x - n
    return x


@program("control flow", lambda: (randn(9),))
def walrus_in_a_loop(x):
    while (n := x.shape[0]) > 2:
        x = x[: n // 2] + x[n // 2 : n // 2 * 2]
    return x, n


@program("control flow", lambda: (randn(2, 3),))
def star_unpacking(x):
    (a, b, *c), (*d, e) = x[0], [1, 2, 3]
    return a + b, c, d, e, [*x, *d], {**{"a": 1}, "b": a}


@program("control flow", lambda: (randn(4), 2, 3))
def chained_comparisons(x, low, high):
    inside = low <= x.dim() + 1 < high <= 5
    return x + (1 if inside else 2), low < high != 4, not low > high, low is not high


@program("control flow", lambda: (randn(2, 6),))
def beam_search_step(scores):
    beams, width = [(scores[0], [0], 0.0)], 2
    for depth in range(2):
        candidates = []
        for row, path, weight in beams:
            for choice in range(width):
                candidates.append((row.roll(choice) + weight, [*path, choice], weight + depth))
        candidates.sort(key=lambda c: (-c[2], c[1]))
        beams = candidates[:3]
    return [(row, path) for row, path, _ in beams]


@program("control flow", lambda: (randn(1, 2, 5, 4), randn(1, 2, 5, 4), randn(1, 2, 5, 4)))
def attention_with_masks(q, k, v, window=3):
    n = q.shape[-2]
    i = torch.arange(n)
    mask = i[:, None] >= i[None, :]
    if window is not None:
        mask &= i[:, None] - i[None, :] < window
    scores = (q @ k.mT) / q.shape[-1] ** 0.5
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v


@program("control flow", lambda: (randn(2, 4), None))
def conditional_expressions(x, bias):
    y = x if bias is None else x + bias
    assert y.shape == x.shape, f"{y.shape} differs"
    z = (y and None) if x.numel() == 1 else y or None if x.numel() == 0 else y * 2
    return z


def _fibonacci(n):
    return n if n < 2 else _fibonacci(n - 1) + _fibonacci(n - 2)


@program("control flow", lambda: (randn(3), 7))
def recursive_helper(x, n):
    return x * _fibonacci(n)


@program("control flow", lambda: (randn(3),))
def nested_loops_with_a_flag(x):
    found = None
    for i in range(4):
        for j in range(i, 4):
            if i * j == 6:
                found = (i, j)
                break
            x = x + j
        if found:
            break
    return x, found
