"""Everything that is fuzzed, by name."""

from __future__ import annotations

from tests.fuzz.artifacts import ARTIFACT
from tests.fuzz.dumps import GRAPHS
from tests.fuzz.engine import ENGINE
from tests.fuzz.logs import LOGS
from tests.fuzz.programs import CHECK
from tests.fuzz.texts import PARSER, YAML

TARGETS = {target.name: target for target in (PARSER, YAML, CHECK, ARTIFACT, GRAPHS, LOGS, ENGINE)}
