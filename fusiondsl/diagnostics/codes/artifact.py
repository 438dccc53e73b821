"""Codes FD640 to FD659: compiled artifacts and other files of the command line."""

from __future__ import annotations

from fusiondsl.diagnostics.codes.info import CodeInfo

CODES: dict[str, CodeInfo] = {
    "FD640": CodeInfo(
        "artifact cannot be read",
        "The path is wrong, names a directory, or may not be read.",
    ),
    "FD641": CodeInfo(
        "not an artifact",
        "An artifact is what `fusiondsl compile PATHS -o FILE` writes. Rule files are compiled "
        "first, graph dumps are given with `--graph`.",
    ),
    "FD642": CodeInfo(
        "artifact damaged",
        "The file begins like an artifact, but what follows is not what was written: it was cut "
        "short, changed, or mixed with another file. Nothing of it is used. Compile the rules "
        "again.",
    ),
    "FD643": CodeInfo(
        "artifact of another version",
        "Artifacts carry the version of their format and a digest of the layout of programs, and "
        "only these are read: a guess at others could rewrite a graph wrongly. Compile the rules "
        "again with the installed version. The version of torch does not matter: nothing in an "
        "artifact is traced.",
    ),
    "FD644": CodeInfo(
        "file cannot be written",
        "The directory does not exist or may not be written to, or the disk is full. What was at "
        "that path before is unchanged.",
    ),
    "FD645": CodeInfo(
        "rules too large for an artifact",
        "Artifacts are read whole, so their size has a limit that is a hundred times what the "
        "shipped rules need, and so has the depth of expressions. Compile parts of the rules into "
        "artifacts of their own.",
    ),
    "FD646": CodeInfo(
        "directory holds other files",
        "`fusiondsl docs` replaces a whole directory, so it writes only to one that is new, empty, "
        "or holds nothing but pages it wrote before. Give another directory, or move the file.",
    ),
    "FD650": CodeInfo(
        "arguments do not go together",
        "An artifact holds all its rules and the target they are compiled for, so it is given "
        "alone and without target options; and the file a command writes cannot be one it reads.",
    ),
}
