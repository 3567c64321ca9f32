"""Size facts as text: each symbol once, with its range, where its value is read and what it was; then relations.

symbol s0 in [2, inf] from 'x.size(0)' hint 6
fact '((s0 % 2) == 0)'  #3
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from intarsia_ir._tokens import Tokens, fail, unquoted
from intarsia_ir.records import Origin, SizeFact, SizeFacts

__all__ = ["fact_lines", "read_facts"]


def fact_lines(facts: SizeFacts, comment: Callable[[Sequence[Origin]], str]) -> Iterator[str]:
    """Yield the lines of size facts; `comment` writes the lines of the user's that they come from."""
    for name in dict.fromkeys((*facts.symbols, *facts.ranges, *facts.hints)):
        text = f"symbol {name}"
        if name in facts.ranges:
            low, high = facts.ranges[name]
            text += f" in [{'-inf' if low is None else low}, {'inf' if high is None else high}]"
        if name in facts.symbols:
            text += f" from {facts.symbols[name]!r}"
        yield text + (f" hint {facts.hints[name]}" if name in facts.hints else "")
    for fact in facts.facts:
        yield f"fact {fact.relation!r}" + comment((fact.origin,) if fact.origin else ())


def read_facts(tokens: Tokens, origins: Callable[[], Sequence[Origin]]) -> SizeFacts:
    """Read size facts from the start of a text; `origins` reads the comment that ends a line."""
    symbols: dict[str, str] = {}
    ranges: dict[str, tuple[int | None, int | None]] = {}
    hints: dict[str, int] = {}
    while tokens.accept("symbol"):
        name = tokens.expect_kind("name").text
        if tokens.accept("in"):
            tokens.expect("[")
            low = _end(tokens)
            tokens.expect(",")
            ranges[name] = (low, _end(tokens))
            tokens.expect("]")
        if tokens.accept("from"):
            symbols[name] = _string(tokens)
        if tokens.accept("hint"):
            hints[name] = int(tokens.expect_kind("number").text)
    facts = []
    while tokens.accept("fact"):
        relation = _string(tokens)
        where = origins()
        facts.append(SizeFact(relation, where[0] if where else None))
    return SizeFacts(symbols, ranges, tuple(facts), hints)


def _string(tokens: Tokens) -> str:
    return unquoted(tokens.expect_kind("string").text)


def _end(tokens: Tokens) -> int | None:
    token = tokens.take()
    if token.text in ("inf", "-inf"):
        return None
    if token.kind != "number":
        fail(f"expected an end of a range, found {token.text!r}", token.line)
    return int(token.text)
