"""Codes FD600 to FD639: FX graphs as text or in our saved form, and contracts."""

from __future__ import annotations

from fusiondsl.diagnostics.codes.info import CodeInfo

CODES: dict[str, CodeInfo] = {
    "FD600": CodeInfo(
        "graph file cannot be read",
        "The path is wrong, names a directory, or may not be read.",
    ),
    "FD601": CodeInfo(
        "graph file is not text",
        "The file holds NUL bytes. A pickled or zipped graph cannot be read: print the graph with "
        "`gm.print_readable(include_stride=True, include_device=True)` instead.",
    ),
    "FD602": CodeInfo("graph file is not UTF-8", "Convert the file to UTF-8."),
    "FD603": CodeInfo(
        "graph text too large", "The reader accepts texts of up to 64 MiB; split the file."
    ),
    "FD604": CodeInfo(
        "no FX graph in the text",
        "The reader looks for `def forward(self, ...):`, as `gm.print_readable()` and logs print "
        "it, for `graph():`, as `str(graph)` does, and for statements such as "
        '`add: "f32[4]" = torch.ops.aten.add.Tensor(x, y)`.',
    ),
    "FD605": CodeInfo(
        "statement of the graph text cannot be parsed",
        "Graph text is a small part of Python: assignments of one call each, and one `return`.",
    ),
    "FD606": CodeInfo(
        "expressions nested too deeply",
        "FX prints one operation a statement; depth beyond the limit is no FX graph.",
    ),
    "FD607": CodeInfo("number out of range", "FX graphs hold 64-bit integers."),
    "FD608": CodeInfo(
        "not an FX type annotation",
        "Annotations have the form `bf16[s77, 256][256, 1]cuda:0` (dtype, sizes, strides, device) "
        "or `Sym(s77)`. Sizes are integer expressions over symbols.",
    ),
    "FD609": CodeInfo(
        "unknown dtype in an annotation",
        "Dtypes are written as FX abbreviates them: `bf16`, `f32`, `f8e4m3fn`, `i64`, `u8`, `b8`.",
    ),
    "FD610": CodeInfo("unknown device", "The device is not a type that torch knows."),
    "FD611": CodeInfo(
        "value used before it is defined",
        "Every name must be a parameter or the left side of an earlier statement.",
    ),
    "FD612": CodeInfo(
        "not a single FX node",
        "The statement holds a nested call, or names a function or constant that FX does not "
        "print.",
    ),
    "FD613": CodeInfo(
        "annotation describes no tensor",
        "A size is negative, or the numbers of sizes and strides differ.",
    ),
    "FD615": CodeInfo("parameter declared twice", "Names of placeholders are unique."),
    "FD616": CodeInfo(
        "not a statement of an FX graph",
        "FX prints assignments, in-place operators, frees (`a = None`) and one `return`.",
    ),
    "FD617": CodeInfo(
        "the text is no FX graph but something else",
        "Inductor's IR, generated code, kernels and graphs of other tools are not read. For a "
        "graph, print `gm.print_readable()`, or set `TORCH_LOGS=post_grad_graphs`.",
    ),
    "FD618": CodeInfo(
        "no graph with this number",
        "`FILE#3` is the third graph in the file; `fusiondsl graphs FILE` lists them.",
    ),
    "FD620": CodeInfo(
        "not a saved graph of this version",
        "The file is not what `fusiondsl.graphs.save` writes, or another version wrote it.",
    ),
    "FD621": CodeInfo(
        "saved graph damaged",
        "The file has the form of a saved graph but contradicts itself; save the graph again.",
    ),
    "FD622": CodeInfo(
        "graph cannot be saved",
        "The graph holds an argument or a call target that the saved form cannot express.",
    ),
    "FD630": CodeInfo(
        "declared extern op cannot be defined",
        "The schema snapshot of the op is not one torch accepts.",
    ),
    "FD631": CodeInfo(
        "contract for an unknown rule",
        "A contract names rules that are read together with it, or `*` for all that it does not "
        "name. A name that no rule has would be a contract that always holds.",
    ),
    "FD632": CodeInfo(
        "contract for an unknown graph",
        "A contract names graphs that are audited: by name, by number as `#2`, or `*` for all that "
        "no other key names.",
    ),
    "FD633": CodeInfo(
        "not a number of sites",
        "A contract counts sites: `rule: 2`, or `rule: {fires: 2, close: 1}`.",
    ),
}
