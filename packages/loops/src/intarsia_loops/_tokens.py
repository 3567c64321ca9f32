"""Text of programs -> tokens that know their line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from intarsia_ir.errors import InvalidArgumentError, UnsupportedError
from intarsia_loops._subgraphs import GRAPH

__all__ = ["Token", "fail", "tokens_after_head", "tokens_of"]

_TOKEN = re.compile(
    rf"""(?P<space>[ \t\n]+)
      | (?P<graph>{GRAPH})
      | (?P<comment>\#[^\n]*)
      | (?P<string>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")
      | (?P<buffer>%[A-Za-z_]\w*)
      | (?P<number>(?:inf|nan)\b|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)
      | (?P<name>[A-Za-z_]\w*(?:\.\w+)*)
      | (?P<sign>//|[<>=!]=|[-<>()\[\]{{}},:;=@+*%`])
    """,
    re.VERBOSE,
)


class Token(NamedTuple):
    """One token: its kind (a group of the pattern), its text, and its 1-based line."""

    kind: str
    text: str
    line: int


def fail(what: str, line: int) -> NoReturn:
    """Raise the error for text that can't be read."""
    raise InvalidArgumentError(f"line {line} of the IR text: {what}", code="ir.parse")


def tokens_after_head(text: str, dialect: str, schemas: Sequence[int], line: int = 0) -> list[Token]:
    """Return the tokens after the header.

    Args:
        text: Of a program, without its footer.
        dialect: What the header must name.
        schemas: The versions that are read, the newest first.
        line: Lines before the text.

    Raises:
        InvalidArgumentError: It starts with no such header, or isn't made of tokens.
        UnsupportedError: `ir.schema`: it is of another version.
    """
    head, _, rest = text.partition("\n")
    header = re.match(r"// dialect: (\w+) (\d+)", head)
    if header is None or header[1] != dialect:
        fail(f"expected the header '// dialect: {dialect} {schemas[0]}', found {head!r}", line + 1)
    if int(header[2]) not in schemas:
        takes = " and ".join(f"{dialect} {schema}" for schema in schemas)
        raise UnsupportedError(
            f"the text is dialect {dialect} {header[2]}; this reader takes {takes}", code="ir.schema"
        )
    return tokens_of(rest, line + 1)


def tokens_of(text: str, line: int) -> list[Token]:
    """Return the tokens of a text that has `line` lines before it."""
    tokens, position, line = list[Token](), 0, line + 1
    for match in _TOKEN.finditer(text):
        if match.start() != position:
            break  # what it skipped is no token
        kind, word = str(match.lastgroup), match.group()
        if kind != "space":
            tokens.append(Token(kind, word, line))
        if "\n" in word:
            line += word.count("\n")
        position = match.end()
    if position < len(text):
        fail(f"unexpected character {text[position]!r}", line)
    return [*tokens, Token("end", "", line)]
