"""Cuts ClickHouse SQL into tokens, lazily, so that the guard can look at words and never at literals or data.

Purpose: one regular expression that agrees with the engine's own lexer on where comments, strings, heredocs and
quoted identifiers begin and end. Invariants: bytes in, bytes out (a statement may carry binary data); tokens are
produced one by one, so a caller that stops at ``FORMAT Native`` has not touched what follows; comments and spaces
produce none. An unterminated literal is one token up to the end: the engine refuses it by itself.

Before it in the flow: ``request`` (which found the SQL). After it: ``guard`` (which judges the tokens).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

TokenKind = Literal["word", "quoted", "string", "sign"]


@dataclass(frozen=True, slots=True)
class Token:
    """One lexical element: ``text`` is its raw bytes, ``start`` and ``end`` its place in the SQL."""

    kind: TokenKind
    text: bytes
    start: int
    end: int

    @property
    def upper(self) -> str:
        """The word as keywords compare it; empty for anything that is not a bare word."""
        return self.text.decode("ascii").upper() if self.kind == "word" else ""

    @property
    def name(self) -> str:
        """The identifier that a bare or quoted word stands for; empty for strings and signs."""
        if self.kind == "word":
            return self.text.decode("ascii")
        if self.kind != "quoted":
            return ""
        text = self.text.decode("utf-8", "replace")
        quote = text[0]
        inner = text[1:-1] if len(text) > 1 else ""
        return inner.replace(quote + quote, quote) if quote in '`"' else inner


# Order matters: a comment wins over the signs it starts with, a heredoc over a word that starts with a dollar.
# Curly quotes and `//` comments are the engine's own extensions (measured with 26.9).
_TOKEN = re.compile(
    rb"""
      (?P<skip>   [\s\x00]+ | --[^\n]* | \#[\ !][^\n]* | //[^\n]* | /\*.*?(?:\*/|\Z) )
    | (?P<string> '(?:[^'\\]++|\\.|'')*+(?:'|\\?\Z) | \xe2\x80\x98.*?(?:\xe2\x80\x99|\Z)
                | \$(?P<tag>\w*)\$.*?(?:\$(?P=tag)\$|\Z) )
    | (?P<quoted> `(?:[^`\\]++|\\.|``)*+(?:`|\\?\Z) | "(?:[^"\\]++|\\.|"")*+(?:"|\\?\Z)
                | \xe2\x80\x9c.*?(?:\xe2\x80\x9d|\Z) )
    | (?P<word>   [A-Za-z0-9_][A-Za-z0-9_$]* )
    | (?P<sign>   . )
    """,
    re.VERBOSE | re.DOTALL,
)
_KINDS: dict[str, TokenKind] = {"string": "string", "quoted": "quoted", "word": "word", "sign": "sign"}


def tokens(sql: bytes) -> Iterator[Token]:
    """Yield the tokens of ``sql`` in order."""
    for match in _TOKEN.finditer(sql):
        group = match.lastgroup
        if group is not None and group != "skip":
            yield Token(_KINDS[group], match.group(), match.start(), match.end())
