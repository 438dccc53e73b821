"""The parser made from `grammar/fusion.lark`, with its bracket filter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lark import Lark, Token
from lark.lark import PostLex

from fusiondsl.resources import grammar_file
from fusiondsl.syntax.limits import MAX_NESTING, MAX_STATEMENT_TOKENS

STARTS = (
    "module",
    "statements_text",
    "expression_text",
    "condition_text",
    "difference_text",
    "type_text",
    "param_text",
    "impl_text",
    "effect_text",
    "unread_text",
    "count_text",
)
"""Start rules: a whole `.fuse` file, and the pieces of text in YAML files."""

_OPENERS = frozenset({"LPAR", "LSQB", "LBRACE"})
_CLOSERS = frozenset({"RPAR", "RSQB", "RBRACE"})


class LimitError(Exception):
    """The text goes beyond one of the `limits` at `token`; the message says which."""

    def __init__(self, message: str, token: Token) -> None:
        super().__init__(message)
        self.token = token


class Brackets(PostLex):
    """Drops newlines inside `(` and `[`, and remembers which brackets are open."""

    always_accept = ()

    def __init__(self) -> None:
        self.open: list[Token] = []
        self.closed: Token | None = None
        """The opening bracket of the bracket closed last."""
        self.last: Token | None = None
        """The token seen last; one that cannot be read where it stands never comes here."""

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        opened: list[Token] = []
        self.open = opened
        self.closed = None
        length = 0
        for token in stream:
            kind = token.type
            length += 1
            self.last = token
            if length > MAX_STATEMENT_TOKENS:
                raise LimitError("the statement is too long", token)
            if kind == "_SEP":
                if opened and opened[-1].type != "LBRACE" and token[0] == "\n":
                    continue
                length = 0
            elif kind in _OPENERS:
                opened.append(token)
                length = 0 if kind == "LBRACE" else length
                if len(opened) > MAX_NESTING:
                    raise LimitError(f"brackets nest more than {MAX_NESTING} deep", token)
            elif kind in _CLOSERS and opened:
                self.closed = opened.pop()
            yield token


def compile_grammar(builder: Any, brackets: Brackets) -> Lark:
    """A parser that calls `builder` while it reads; `builder` has a method a grammar rule."""
    return Lark(
        grammar_file().read_text(encoding="utf-8"),
        parser="lalr",
        lexer="contextual",
        start=list(STARTS),
        maybe_placeholders=False,
        postlex=brackets,
        transformer=builder,
    )
