"""Splitting the text of a graph into tokens that know their line."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple, NoReturn

from intarsia_ir.errors import InvalidArgumentError

__all__ = ["Token", "Tokens", "tokenize", "unquoted"]

_TOKEN = re.compile(
    r"""(?P<space>[ \t]+)
      | (?P<newline>\n)
      | (?P<comment>\#[^\n]*|//[^\n]*)
      | (?P<string>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")
      | (?P<symbolic>`[^`\n]*`)
      | (?P<node>%[A-Za-z_0-9]+)
      | (?P<opaque>\$[0-9]+)
      | (?P<effect>![a-z_]+(?:\([^)\n]*\))?)
      | (?P<number>-?(?:inf\b|nan\b|[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?))
      | (?P<name>[A-Za-z_]\w*(?:\.(?:\w+|<\w+>))*)
      | (?P<punctuation>\.\.\.|[()\[\]{},:=@+.])
    """,
    re.VERBOSE,
)


class Token(NamedTuple):
    """One token: its kind (a group of the pattern), its text, and its 1-based line."""

    kind: str
    text: str
    line: int


def tokenize(text: str) -> list[Token]:
    """Return the tokens of `text`, without spaces and newlines; comments stay, for origins.

    Raises:
        InvalidArgumentError: A character starts no token.
    """
    tokens, position, line = [], 0, 1
    for match in _TOKEN.finditer(text):
        if match.start() != position:
            break  # what it skipped is no token
        kind = str(match.lastgroup)
        if kind == "newline":
            line += 1
        elif kind != "space":
            tokens.append(Token(kind, match.group(), line))
        position = match.end()
    if position < len(text):
        fail(f"unexpected character {text[position]!r}", line)
    tokens.append(Token("end", "", line))
    return tokens


def fail(what: str, line: int) -> NoReturn:
    """Raise the error for text that can't be read."""
    raise InvalidArgumentError(f"line {line} of the IR text: {what}", code="ir.parse")


def unquoted(text: str) -> str:
    """Return the text that a token of kind string stands for."""
    return str(ast.literal_eval(text)) if "\\" in text else text[1:-1]


class Tokens:
    """A position in a list of tokens. Comments are skipped, except by `comment`."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def line(self) -> int:
        """Line of the next token."""
        return self.peek().line

    def peek(self) -> Token:
        """Return the next token that is no comment, without taking it."""
        at = self._at
        while self._tokens[at].kind == "comment":
            at += 1
        return self._tokens[at]

    def peek_second(self) -> Token:
        """Return the token after the next, comments left out."""
        rest = [t for t in self._tokens[self._at : self._at + 4] if t.kind != "comment"]
        return rest[1] if len(rest) > 1 else rest[0]

    def take(self) -> Token:
        """Take the next token that is no comment."""
        while self._tokens[self._at].kind == "comment":
            self._at += 1
        token = self._tokens[self._at]
        self._at += token.kind != "end"
        return token

    def comment(self) -> Token | None:
        """Take the comment that ends the line of the token taken last; None when there is none."""
        token = self._tokens[self._at]
        if token.kind != "comment" or token.line != self._tokens[self._at - 1].line:
            return None
        self._at += 1
        return token

    def accept(self, text: str) -> bool:
        """Take the next token when it reads `text`, and tell whether it did."""
        token = self.peek()
        if token.text == text and token.kind in ("punctuation", "name"):
            self.take()
            return True
        return False

    def expect(self, text: str) -> Token:
        """Take the next token, which must read `text`."""
        token = self.take()
        if token.text != text or token.kind not in ("punctuation", "name"):
            fail(f"expected {text!r}, found {token.text or 'the end'!r}", token.line)
        return token

    def expect_kind(self, kind: str) -> Token:
        """Take the next token, which must be of `kind`."""
        token = self.take()
        if token.kind != kind:
            fail(f"expected a {kind}, found {token.text or 'the end'!r}", token.line)
        return token
