"""Where conditions on `tokens` change: spans, end points, and what is no number."""

from __future__ import annotations

import pytest

import fusiondsl
from fusiondsl import Target
from fusiondsl.dims import Truth
from fusiondsl.engine.bounds import end_points, token_spans, unclosed
from fusiondsl.engine.compile import Compiled

RULE = """
op bounds.twice(x: D[t.., H]) -> (y: D[t.., H]) {{ means {{ y = x + x }} }}
rule twice(x: D[tokens.., H]) {{
  match {{ y = x + x }}
  replace {{ y = bounds.twice(x) }}
  where {{ {where} }}
}}
"""


def compiled(where: str, **facts: int) -> Compiled:
    known = {name.replace("_", ".", 1): value for name, value in facts.items()}
    rules = fusiondsl.load_source(RULE.format(where=where))
    return rules.compile(Target(tp_size=2, facts=known)).compiled


def shown(where: str, most: int = 1000, **facts: int) -> list[tuple[int, int, str]]:
    made = compiled(where, **facts)
    return [(s.first, s.last, s.truth.value) for s in token_spans(made.rules[0].rule, made, most)]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("D in (bf16, f16)", [(1, 1000, "true")]),
        ("tokens <= 16", [(1, 16, "true"), (17, 1000, "false")]),
        ("tokens < 16", [(1, 15, "true"), (16, 1000, "false")]),
        ("tokens > 16", [(1, 16, "false"), (17, 1000, "true")]),
        ("3 * tokens <= 50", [(1, 16, "true"), (17, 1000, "false")]),
        ("50 >= 3 * tokens", [(1, 16, "true"), (17, 1000, "false")]),
        ("tokens == 8", [(1, 7, "false"), (8, 8, "true"), (9, 1000, "false")]),
        ("tokens >= 4; tokens <= 16", [(1, 3, "false"), (4, 16, "true"), (17, 1000, "false")]),
        ("tokens <= 16 or tokens > 64", [(1, 16, "true"), (17, 64, "false"), (65, 1000, "true")]),
        ("tokens <= 16 and env.tp_size == 4", [(1, 1000, "false")]),
        ("tokens <= 16 or env.tp_size == 2", [(1, 1000, "true")]),
        ("tokens <= 5000", [(1, 1000, "true")]),
    ],
)
def test_spans(where: str, expected: list[tuple[int, int, str]]) -> None:
    assert shown(where) == expected


def test_widths_of_the_model_close_a_bound() -> None:
    where = "tokens * H * itemsize(D) <= 4 KiB"
    facts = {"model_hidden_size": 64, "model_itemsize": 2}
    assert shown(where, **facts) == [(1, 32, "true"), (33, 1000, "false")]
    assert shown(where, model_hidden_size=64, model_itemsize=4)[0] == (1, 16, "true")
    assert shown(where) == [(1, 1000, "unknown")]


def test_what_only_one_dtype_of_the_size_has_is_unknown() -> None:
    where = "D in (bf16, f16) and tokens <= 80"
    assert shown(where, model_itemsize=2) == [(1, 80, "true"), (81, 1000, "false")]
    where = "D == bf16 and tokens <= 80"
    assert shown(where, model_itemsize=2) == [(1, 80, "unknown"), (81, 1000, "false")]


def test_spans_say_what_each_count_by_itself_says() -> None:
    where = "tokens * 6 <= 100 or tokens > 40 and tokens != 50"
    made = compiled(where)
    rule = made.rules[0].rule
    for span in token_spans(rule, made, 64):
        for count in range(span.first, span.last + 1):
            holds = count * 6 <= 100 or (count > 40 and count != 50)
            assert span.truth is Truth.of(holds), count


def test_end_points_name_the_rules_that_ask() -> None:
    assert end_points(compiled("tokens <= 16"), 256) == {16: ("twice",)}
    assert end_points(compiled("tokens <= 16"), 16) == {}
    assert end_points(compiled("tokens <= 16 and env.tp_size == 4"), 256) == {}


def test_what_is_no_number_is_named() -> None:
    made = compiled("few: tokens * H <= 512; fine: tokens <= 4")
    assert [condition.label for condition in unclosed(made.rules[0].rule, made)] == ["few"]
    made = compiled("few: tokens * H <= 512", model_hidden_size=64)
    assert unclosed(made.rules[0].rule, made) == ()
