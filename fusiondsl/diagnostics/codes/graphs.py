"""Diagnostics about FX graphs given as text or in our saved form: FD600 to FD639."""

from __future__ import annotations

CODES: dict[str, str] = {
    "FD600": "The graph file cannot be read. The path is wrong, a directory, or not permitted.",
    "FD601": "The graph file is not text: it holds NUL bytes. A pickled or zipped graph cannot be "
    "read; print it with `gm.print_readable(include_stride=True, include_device=True)`.",
    "FD602": "The graph file is not valid UTF-8.",
    "FD603": "The graph text is larger than the reader accepts.",
    "FD604": "The text holds no FX graph. The reader looks for a `def forward(self, ...):` as "
    "`gm.print_readable()` prints it.",
    "FD605": "A statement of the graph text cannot be parsed.",
    "FD606": "Expressions in the graph text are nested too deeply.",
    "FD607": "A number in the graph text is out of range.",
    "FD608": "A type annotation is not one that FX prints (`bf16[s77, 256][256, 1]cuda:0` or "
    "`Sym(s77)`).",
    "FD609": "An unknown dtype in a type annotation.",
    "FD610": "An unknown device.",
    "FD611": "A value is used that the graph does not define before.",
    "FD612": "A call that is no single FX node (a nested call, an unknown constant or function).",
    "FD613": "The tensor that an annotation describes cannot exist (negative size, wrong number "
    "of strides).",
    "FD614": "The graph text ends without `return`; what was never freed is taken as its output.",
    "FD615": "The same parameter is declared twice.",
    "FD616": "A statement that FX never prints.",
    "FD620": "The file is not a saved graph of this version.",
    "FD621": "The saved graph is damaged.",
    "FD622": "The graph holds something that the saved form cannot express.",
    "FD630": "A declared extern op cannot be defined in this process from its schema snapshot.",
}
