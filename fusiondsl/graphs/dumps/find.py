"""Finds printed graphs among the lines of one writer, line by line; parses none of them."""

from __future__ import annotations

from fusiondsl.graphs.dumps import shapes
from fusiondsl.graphs.dumps.excerpt import Piece
from fusiondsl.graphs.dumps.lines import Lane, Line
from fusiondsl.graphs.dumps.unit import Entry, Kind, Unit

_WRAPPED = 60
"""Shorter lines are not taken for lines that a terminal broke."""


class Finder:
    """Takes the lines of a lane; what is found is appended to `found`."""

    def __init__(self, lane: Lane, found: list[Unit]) -> None:
        self._lane = lane
        self._found = found
        self._banner = ""
        self._function: int | None = None
        """The indent of a Python function that is no graph, while its lines come."""
        self._part: _Module | _Rows | _Fragment | None = None

    def feed(self, line: Line) -> None:
        if self._part is not None and self._part.take(line):
            return
        self.close()
        self._start(line)

    def close(self) -> None:
        """No line is going to follow."""
        if self._part is None:
            return
        unit = self._part.finish()
        if unit is not None:
            self._found.append(unit)
        self._part = None

    def _start(self, line: Line) -> None:
        text = line.text
        if not text or text.isspace():
            return
        banner = shapes.BANNER.match(text) if "=====" in text else None
        if banner is not None:
            self._banner = banner["name"]
            return
        part = self._header(line)
        if part is not None:
            self._function = None
            self._banner = ""
            self._part = part
            return
        if self._inside_function(text) or "_output_code" in self._lane.record:
            return
        if shapes.STATEMENT.match(text) or shapes.COMMENT_OF_NODES.match(text):
            self._part = _Fragment(self._unit(Kind.FRAGMENT), line)

    def _is_source(self, text: str) -> bool:
        """Is a `forward` a method of a class that somebody wrote?"""
        within = self._function is not None and shapes.indent_of(text) > self._function
        return within and not shapes.TYPED.search(text)

    def _inside_function(self, text: str) -> bool:
        """Lines of Python functions are no statements of a graph."""
        indent = shapes.indent_of(text)
        if self._function is not None and indent > self._function:
            return True
        self._function = None
        if shapes.FUNCTION.match(text) or shapes.SOURCE_CLASS.match(text):
            self._function = indent
            return True
        return False

    def _header(self, line: Line) -> _Module | _Rows | None:
        text = line.text
        if "class " in text or ("def forward(" in text and not self._is_source(text)):
            module = _Module(self._unit(Kind.MODULE))
            if module.opens(line):
                return module
        if shapes.GRAPH.match(text) or shapes.KERNEL.match(text):
            return _Rows(self._unit(Kind.KERNEL if "#" in text else Kind.NODES), line)
        if "%" in text and shapes.ROW.match(text):
            return _Rows(self._unit(Kind.NODES), line)
        if "%" in text and shapes.COMMENTED_ROW.match(text):
            return _Rows(self._unit(Kind.KERNEL), line)
        return None

    def _unit(self, kind: Kind) -> Unit:
        return Unit(kind, self._lane, self._banner)


class _Module:
    """Classes of modules with their `forward`, or a `forward` alone."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._classes: list[tuple[int, str]] = []
        self._entry: Entry | None = None
        self._body = 0
        """The indent of the entry's statements; 0 until the first."""
        self._open = 0
        """Brackets that are open at the end of the lines so far."""
        self._state = "outside"
        self._quoted = False
        self._longest = 0

    def opens(self, line: Line) -> bool:
        return self._class(line, outermost=True) or self._forward(line)

    def take(self, line: Line) -> bool:
        if self._state != "outside":
            return self._inside(line)
        text = line.text
        if not text or text.isspace() or text.lstrip().startswith("#"):
            return self._add(line)
        if self._class(line, outermost=False):
            return True
        if self._unit.entries and not self._classes:
            return False
        if self._forward(line):
            return True
        # Between the line of a class and its `forward`, which may follow an `__init__`.
        waiting = bool(self._classes) and not self._entry_of_class()
        return waiting and shapes.indent_of(text) > self._classes[-1][0] and self._add(line)

    def finish(self) -> Unit | None:
        self._end()
        return self._unit if self._unit.entries else None

    # --- headers -------------------------------------------------------------------------------

    def _class(self, line: Line, *, outermost: bool) -> bool:
        found = shapes.MODULE.match(line.text) if "class " in line.text else None
        if found is None:
            return False
        indent = shapes.indent_of(line.text)
        if not outermost:
            named = bool(found["banner"].strip())
            if named or not self._classes or indent <= self._classes[0][0]:
                return False
        self._classes = [outer for outer in self._classes if outer[0] < indent]
        self._classes.append((indent, found["name"]))
        self._entry = None
        return self._add(line)

    def _forward(self, line: Line) -> bool:
        text = line.text
        if "def forward(" not in text:
            return False
        if not (shapes.FORWARD.match(text) or shapes.ANNOTATED_FORWARD.match(text)):
            return False
        indent = shapes.indent_of(text)
        path = tuple(name for width, name in self._classes if width < indent)
        if self._unit.entries and len(path) < 1:
            return False
        self._add(line)
        self._entry = Entry(path or ("forward",), len(self._unit.pieces) - 1, indent)
        self._unit.entries.append(self._entry)
        self._body, self._longest = 0, 0
        self._state = "signature"
        self._open = shapes.nesting(text)
        if self._open <= 0:
            self._state = "body"
        self._measure(line)
        return True

    def _entry_of_class(self) -> bool:
        return self._entry is not None

    # --- the lines of a function ---------------------------------------------------------------

    def _inside(self, line: Line) -> bool:
        text = line.text
        stripped = text.lstrip()
        if self._quoted or stripped.startswith('"""'):
            return self._quotation(line)
        if not stripped or stripped.startswith("#"):
            return self._add(line)
        if self._wraps(line):
            self._unit.pieces.append(Piece(line.number, line.start, text, joined=True))
            self._measure(line)
            self._count(text)
            return True
        if self._ends(line, stripped):
            self._end()
            return self.take(line) if self._unit.entries and self._classes else False
        if self._open > 0 and self._state == "body" and shapes.begins_statement(text):
            # A bracket was never closed.
            self._open = 0
        self._add(line)
        self._measure(line)
        if self._open == 0 and self._state == "body":
            self._body = self._body or shapes.indent_of(text)
            if shapes.RETURN.match(text):
                self._state = "return"
                self._cut_quotes()
        self._count(text)
        return True

    def _count(self, text: str) -> None:
        self._open = max(0, self._open + shapes.nesting(text))
        if self._open > 0:
            return
        if self._state == "signature":
            self._state = "body"
        elif self._state == "return" and self._entry is not None:
            self._entry.complete = True
            self._end()

    def _ends(self, line: Line, stripped: str) -> bool:
        entry = self._entry
        assert entry is not None
        if shapes.FENCE.match(stripped) or shapes.BANNER.match(line.text):
            return True
        if "class " in stripped and shapes.MODULE.match(line.text):
            return True
        if "def forward(" in stripped and shapes.FORWARD.match(line.text):
            return True
        if self._open > 0 or stripped[0] in ")]}":
            return False
        return shapes.indent_of(line.text) <= entry.indent

    def _quotation(self, line: Line) -> bool:
        if line.text.count('"""') % 2 == 1:
            self._quoted = not self._quoted
        return self._add(line)

    def _cut_quotes(self) -> None:
        """A graph in the string of a test ends where the string does."""
        last = self._unit.pieces[-1]
        end = last.text.find('"""')
        if end >= 0:
            self._unit.pieces[-1] = last._replace(text=last.text[:end])

    def _wraps(self, line: Line) -> bool:
        """Does the line go on where a terminal broke the one before?"""
        if self._longest < _WRAPPED or not self._unit.pieces:
            return False
        before = self._unit.pieces[-1]
        if len(before.text) != self._longest or before.number + 1 != line.number:
            return False
        entry = self._entry
        assert entry is not None
        if shapes.indent_of(line.text) > entry.indent or line.text.lstrip()[0] in ")]}":
            return False
        return not (shapes.FENCE.match(line.text) or shapes.BANNER.match(line.text))

    def _measure(self, line: Line) -> None:
        self._longest = max(self._longest, len(line.text))

    def _end(self) -> None:
        if self._entry is not None and self._state != "outside":
            self._entry.last = len(self._unit.pieces) - 1
        self._state = "outside"
        self._open = 0
        self._quoted = False

    def _add(self, line: Line) -> bool:
        self._unit.pieces.append(Piece(line.number, line.start, line.text))
        return True


class _Rows:
    """A graph of which every node has a line of its own."""

    def __init__(self, unit: Unit, line: Line) -> None:
        self._unit = unit
        self._entry = Entry(("kernel" if unit.kind is Kind.KERNEL else "graph",), 0, 0)
        self._rows = 0
        self._done = False
        unit.entries.append(self._entry)
        self._add(line)

    def take(self, line: Line) -> bool:
        text = line.text.lstrip()
        if self._unit.kind is Kind.KERNEL:
            if not text.startswith("#"):
                return False
            text = text[1:].lstrip()
        elif not text:
            return True
        if self._done or text.startswith("```"):
            return False
        if text[0:1] == "%" or text.startswith(("return ", "return(")):
            return self._add(line)
        if shapes.LEFT_OUT.match(text):
            return self._add(line)
        last = self._unit.pieces[-1]
        if self._rows and last.number + 1 == line.number and shapes.nesting(last.text) > 0:
            self._unit.pieces.append(Piece(line.number, line.start, line.text, joined=True))
            return True
        return False

    def finish(self) -> Unit | None:
        self._entry.last = len(self._unit.pieces) - 1
        return self._unit if self._rows else None

    def _add(self, line: Line) -> bool:
        self._unit.pieces.append(Piece(line.number, line.start, line.text))
        text = line.text.lstrip(" \t#")
        self._rows += text.startswith("%")
        if text.startswith("return"):
            self._done = self._entry.complete = True
        return True


class _Fragment:
    """Statements without the line of a function. They count where one can be nothing else."""

    def __init__(self, unit: Unit, line: Line) -> None:
        self._unit = unit
        self._entry = Entry(("fragment",), 0, -1)
        self._names: set[str] = set()
        self._sure = False
        self._open = 0
        self._left_out = False
        unit.entries.append(self._entry)
        self._add(line)

    def take(self, line: Line) -> bool:
        text = line.text
        if not text or text.isspace():
            return self._append(line)
        if self._entry.complete or shapes.FENCE.match(text) or self._begins_another(text):
            return False
        if text.lstrip().startswith("#"):
            return not shapes.LABEL.match(text) and not self._is_row(text) and self._append(line)
        if self._open > 0 and not shapes.NODE.match(text):
            return self._add(line)
        if shapes.STATEMENT.match(text) or shapes.LEFT_OUT.match(text):
            self._open = 0
            return self._add(line)
        return False

    def _is_row(self, text: str) -> bool:
        return bool(shapes.KERNEL.match(text) or shapes.COMMENTED_ROW.match(text))

    def _begins_another(self, text: str) -> bool:
        if "class " in text and shapes.MODULE.match(text):
            return True
        if "def forward(" in text and shapes.FORWARD.match(text):
            return True
        named = shapes.ASSIGNMENT.match(text) if self._open == 0 else None
        return named is not None and not named["none"] and named["name"] in self._names

    def finish(self) -> Unit | None:
        if not self._sure:
            return None
        while not self._unit.pieces[-1].text.strip():
            self._unit.pieces.pop()
        self._entry.last = len(self._unit.pieces) - 1
        return self._unit

    def _append(self, line: Line) -> bool:
        self._unit.pieces.append(Piece(line.number, line.start, line.text))
        return True

    def _add(self, line: Line) -> bool:
        text = line.text
        self._append(line)
        self._sure = self._sure or shapes.is_node(text)
        if self._open == 0:
            named = shapes.ASSIGNMENT.match(text)
            if named is not None and not named["none"]:
                self._names.add(named["name"])
        self._open = max(0, self._open + shapes.nesting(text))
        if shapes.RETURN.match(text) and self._open == 0:
            self._entry.complete = True
        return True
