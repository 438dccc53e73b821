"""Turns what the parser says about wrong text into a diagnostic a person can act on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lark import Token
from lark.exceptions import UnexpectedInput, UnexpectedToken

from fusiondsl.diagnostics.diagnostic import Diagnostic, Label, Severity
from fusiondsl.diagnostics.source import Span
from fusiondsl.diagnostics.suggest import did_you_mean
from fusiondsl.syntax.grammar import Brackets, LimitError

_ITEMS = ("import", "dtypes", "let", "table", "extern", "op", "rule", "fuse", "expect")
_CLAUSES = frozenset(
    {"doc", "means", "form", "where", "available", "impl", "effect", "unread", "differs", "let"}
    | {"match", "replace", "allow", "keep", "before", "after", "example"}
)
_PUNCTUATION = {
    "LPAR": "(",
    "RPAR": ")",
    "LSQB": "[",
    "RSQB": "]",
    "LBRACE": "{",
    "RBRACE": "}",
    "COMMA": ",",
    "COLON": ":",
    "EQUAL": "=",
    "ELLIPSIS": "..",
    "ARROW": "->",
    "QUESTION": "?",
    "DOT": ".",
}
_OPERATORS = frozenset(
    {"OR", "AND", "NOT_IN", "IN", "IS_NOT", "IS", "COMPARE", "PLUS", "MINUS", "STAR", "POWER"}
    | {"SLASH", "FLOOR", "PERCENT", "DOT"}
)
_EXPRESSION = frozenset(
    {"NAME", "SPREAD", "INT", "FLOAT", "SIZE", "STRING", "TRUE", "FALSE", "NONE", "LPAR", "LSQB"}
)
_STARTS_EXPRESSION = _EXPRESSION | {"TILDE"}
_CLOSING = {"LPAR": ")", "LSQB": "]", "LBRACE": "}"}
_WORDS = {
    "NAME": "a name",
    "STRING": "a string",
    "INT": "a whole number",
    "COMPARE": "a comparison",
    "_SEP": "the end of the line",
    "$END": "the end",
}
_CHARACTER_HINTS = {
    "'": 'strings use double quotes: `"text"`',
    "!": "write `not` in front of a condition, or `!=` between two values",
    "&": "write `and`",
    "|": "write `or`",
    "@": "a matrix product is written `matmul(x, y)`",
    "^": "a power is written `**`",
}


@dataclass
class Failure:
    """One place where reading stopped."""

    error: UnexpectedInput | LimitError
    text: str
    brackets: Brackets
    at: Callable[[int, int], Span]
    position: int = field(init=False)

    def __post_init__(self) -> None:
        match self.error:
            case LimitError(token=token) | UnexpectedToken(token=token):
                self.position = self._start(token)
            case _:
                self.position = getattr(self.error, "pos_in_stream", None) or 0

    def _start(self, token: Token) -> int:
        if token.type == "$END":
            return len(self.text.rstrip())
        return token.start_pos or 0

    def diagnose(self) -> Diagnostic:
        match self.error:
            case LimitError(token=token):
                return self._made("FD015", str(self.error), self._span(token))
            case UnexpectedToken(token=token):
                return self._token(token)
            case _:
                return self._character()

    def _made(self, code: str, message: str, span: Span, **extra: Any) -> Diagnostic:
        return Diagnostic(code, Severity.ERROR, message, span, **extra)

    def _span(self, token: Token) -> Span:
        start = self._start(token)
        if token.type == "$END":
            return self.at(start, start)
        if token.type == "_SEP":
            return self.at(start, start + 1)
        return self.at(start, start + len(token))

    # --- characters --------------------------------------------------------------------------

    def _character(self) -> Diagnostic:
        position = self.position
        char = self.text[position]
        span = self.at(position, position + 1)
        if char == '"':
            fix = 'end the string with `"` on the same line'
            return self._made("FD014", "the string is not closed", self._rest(), help=fix)
        if char.isdigit():
            return self._made("FD018", "malformed number", self._word())
        shown = f"`{char}`" if char.isprintable() else f"U+{ord(char):04X}"
        hint = _CHARACTER_HINTS.get(char)
        return self._made("FD013", f"unexpected character {shown}", span, help=hint)

    def _rest(self) -> Span:
        end = self.text.find("\n", self.position)
        return self.at(self.position, len(self.text) if end < 0 else end)

    def _word(self) -> Span:
        end = self.position
        while end < len(self.text) and (self.text[end].isalnum() or self.text[end] in "_."):
            end += 1
        return self.at(self.position, end)

    # --- tokens ------------------------------------------------------------------------------

    def _token(self, token: Token) -> Diagnostic:
        opener = self._opener(token)
        if opener is not None and self._is_past(opener, token):
            return self._unclosed(opener, token)
        accepts = self._accepts()
        unknown = self._unknown_clause(token, accepts)
        if unknown is not None:
            return unknown
        if opener is not None and token.type == "LBRACE" and self._clause_word(token):
            return self._unclosed_block(opener, token)
        found = self._found(token)
        message = f"expected {self._expected(accepts)}, found {found}"
        return self._made(
            "FD010",
            message,
            self._span(token),
            labels=self._open_label(opener, token),
            help=self._hint(token, accepts),
        )

    def _accepts(self) -> frozenset[str]:
        parser = getattr(self.error, "interactive_parser", None)
        if parser is None:
            return frozenset(getattr(self.error, "expected", ()) or ())
        return frozenset(parser.accepts())

    def _opener(self, token: Token) -> Token | None:
        """The innermost bracket that is open where `token` stands."""
        is_closing = token.type in ("RPAR", "RSQB", "RBRACE")
        if is_closing and self.brackets.last is token:
            return self.brackets.closed
        opened = [bracket for bracket in self.brackets.open if bracket is not token]
        return opened[-1] if opened else None

    def _is_past(self, opener: Token, token: Token) -> bool:
        """Whether the text reached something that cannot be inside `opener`."""
        if token.type == "$END":
            return True
        if token.type in ("RPAR", "RSQB", "RBRACE"):
            return _PUNCTUATION[token.type] != _CLOSING[opener.type]
        start = self._start(token)
        at_margin = start == 0 or self.text[start - 1] == "\n"
        return at_margin and str(token) in _ITEMS

    def _unclosed(self, opener: Token, token: Token) -> Diagnostic:
        closing = _CLOSING[opener.type]
        end = token.type == "$END"
        reached = "the text ends here" if end else f"`{closing}` is missing before this"
        return self._made(
            "FD011",
            f"`{opener}` is never closed",
            self._span(opener),
            labels=(Label(self._span(token), reached),),
            help=f"add `{closing}`",
        )

    def _clause_word(self, token: Token) -> str | None:
        """The clause keyword in front of `token`, where it starts its line."""
        line = self.text[: self._start(token)].rpartition("\n")[2]
        word = line.strip()
        return word if word in _CLAUSES else None

    def _unclosed_block(self, opener: Token, token: Token) -> Diagnostic:
        word = self._clause_word(token)
        labels = (Label(self._span(token), f"`}}` is missing before `{word}`"),)
        message = f"`{opener}` is never closed"
        return self._made("FD011", message, self._span(opener), labels=labels, help="add `}`")

    def _open_label(self, opener: Token | None, token: Token) -> tuple[Label, ...]:
        """Points at an open `(` or `[` of an earlier line: newlines do not count inside it."""
        if opener is None or opener.type == "LBRACE":
            return ()
        if "\n" not in self.text[opener.start_pos or 0 : self._start(token)]:
            return ()
        return (Label(self._span(opener), "this bracket is still open"),)

    def _unknown_clause(self, token: Token, accepts: frozenset[str]) -> Diagnostic | None:
        if not accepts & {"RULE", "MATCH", "MEANS", "DOC"} or "NAME" in accepts:
            return None
        known = sorted(name.lower() for name in accepts if name.lower() in _CLAUSES | set(_ITEMS))
        if not str(token)[:1].isalpha():
            return None
        place = "item" if "RULE" in accepts else "clause"
        hint = did_you_mean(str(token), known)
        if str(token) in _CLAUSES | set(_ITEMS):
            message = f"`{token}` cannot stand here"
        else:
            message = f"unknown {place} `{token}`"
        notes = ("known here: " + ", ".join(f"`{name}`" for name in known),)
        return self._made("FD012", message, self._span(token), notes=notes, help=hint)

    def _found(self, token: Token) -> str:
        if token.type == "$END":
            return "the end of the text"
        if token.type == "_SEP":
            return "`;`" if token.startswith(";") else "the end of the line"
        text = str(token)
        return f"`{text}`" if len(text) <= 40 else f"`{text[:37]}...`"

    def _expected(self, accepts: frozenset[str]) -> str:
        if accepts >= {"OP", "RULE"}:
            return "an item such as `op` or `rule`"
        rest = set(accepts)
        words: list[str] = []
        if rest >= _EXPRESSION:
            words.append("an expression")
            rest -= _EXPRESSION | {"MINUS", "NOT", "TILDE", "ELLIPSIS", "COLON"}
        elif "INT" in rest:
            rest -= {"MINUS"}
        elif len(rest & _OPERATORS) > 3:
            words.append("an operator")
            rest -= _OPERATORS | {"LSQB"}
        words = [*sorted(self._word_of(name) for name in rest), *words]
        if len(words) < 2:
            return words[0] if words else "nothing more"
        return ", ".join(words[:-1]) + " or " + words[-1]

    def _word_of(self, terminal: str) -> str:
        if terminal in _PUNCTUATION:
            return f"`{_PUNCTUATION[terminal]}`"
        if terminal == "KIND":
            return "`out`, `inout`, `token`"
        if terminal == "STAR":
            return "`*`"
        return _WORDS.get(terminal, f"`{terminal.lower()}`")

    def _hint(self, token: Token, accepts: frozenset[str]) -> str | None:
        kind = token.type
        if kind == "COLON" and "EQUAL" in accepts:
            return "a value is given with `=`, a type with `:`"
        if kind == "EQUAL":
            return self._equal_hint(token, accepts)
        if kind == "COMPARE" and token == "==" and "EQUAL" in accepts:
            return "a value is given with a single `=`; `==` compares"
        if kind in _STARTS_EXPRESSION and "COMMA" in accepts:
            return "is a `,` missing?"
        if kind == "COMMA" and "_SEP" in accepts:
            return "lines are separated by a newline or `;`, not by `,`"
        if kind == "ELLIPSIS":
            return "name the leading dimensions: `tokens..`"
        return None

    def _equal_hint(self, token: Token, accepts: frozenset[str]) -> str | None:
        start = self._start(token)
        if self.text[start - 1 : start] == "=":
            return "a value is given with a single `=`; `==` compares"
        if "COLON" in accepts and "COMPARE" not in accepts:
            return "a type is given with `:`, a value with `=`"
        return "`=` gives a value; `==` compares" if "COMPARE" in accepts else None
