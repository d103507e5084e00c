"""The pure parts of the command line: clean text, and text in the width of a terminal."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from hookline import ApprovalRequest, ToolCall, ToolFailure, ToolResult
from hookline.cli._terminal.clean_text import prose, strict
from hookline.cli._terminal.hook_lines import HookRun, add_up, hook_line
from hookline.cli._terminal.prompts import editable
from hookline.cli._terminal.styled_lines import call_line, question, result_text
from hookline.cli._terminal.text_layout import INDENT, Flow, break_words, fit, fold
from hookline.testing import call, raw_call

CONTROLS = st.characters(categories=["Cc", "Cf", "Zl", "Zp"])
TEXT = st.text(st.one_of(st.characters(), CONTROLS, st.sampled_from(" \n\t\r漢é👩")))
WIDTH = st.integers(min_value=20, max_value=100)


@given(TEXT)
def test_prose_controls_nothing(text: str) -> None:
    for char in prose(text):
        assert char in "\n\t\u200c\u200d\u200e\u200f\u061c" or unicodedata.category(char) not in (
            "Cc", "Cf", "Cs", "Zl", "Zp",
        )  # fmt: skip


@given(TEXT)
def test_strict_text_is_one_line_of_what_is_seen(text: str) -> None:
    assert strict(text).isprintable()


@given(st.text(st.characters(categories=["L", "N", "P"], max_codepoint=0x2FF)))
def test_what_is_harmless_stays_as_it_is(text: str) -> None:
    assert prose(text) == strict(text) == text


@pytest.mark.parametrize(
    ("text", "read", "exact"),
    [
        ("a\x1b[2Jb", "a␛[2Jb", "a\\x1b[2Jb"),
        ("a\r\nb\rc", "a\nb␍c", "a\\r\\nb\\rc"),
        ("\x7f\x9b", "␡\\x9b", "\\x7f\\x9b"),
        ("a\u202eb", "a\\u202eb", "a\\u202eb"),
        ("\U000e0041", "\\U000e0041", "\\U000e0041"),
        ("नम\u200dस्ते", "नम\u200dस्ते", "नम\\u200dस्ते"),
        ("a\ufe0f\u3164b\xa0", "a\ufe0f\u3164b\xa0", "a\\ufe0f\\u3164b\\xa0"),
    ],
)
def test_what_is_put_in_its_place(text: str, read: str, exact: str) -> None:
    assert (prose(text), strict(text)) == (read, exact)


def flowed(pieces: list[str], width: int) -> str:
    flow = Flow()
    return "".join([flow.feed(each, width) for each in pieces]) + flow.end(width)


@given(TEXT, WIDTH)
def test_every_line_of_a_flow_fits_behind_its_indent(text: str, width: int) -> None:
    for line in flowed([text], width).split("\n"):
        assert cell_len(line) <= width
        assert not line or line.startswith(INDENT)


@given(st.lists(TEXT), WIDTH)
def test_a_flow_is_the_same_however_it_is_cut(pieces: list[str], width: int) -> None:
    assert flowed(pieces, width) == flowed(["".join(pieces)], width)


@given(TEXT, WIDTH)
def test_a_flow_loses_nothing_but_blanks(text: str, width: int) -> None:
    whole = prose(text + "\n")  # a carriage return at the very end ends the line
    assert "".join(flowed([text], width).split()) == "".join(whole.split())


def test_a_flow_breaks_between_words_and_keeps_the_blanks_that_begin_a_line() -> None:
    text = "one two three four five\n    six seven eight nine\n\nten"
    assert flowed([text], 20).splitlines() == [
        "  one two three four",
        "  five",
        "      six seven",
        "  eight nine",
        "",
        "  ten",
    ]


@given(TEXT, st.integers(min_value=8, max_value=60))
def test_folding_leaves_nothing_out(text: str, width: int) -> None:
    clean = strict(text)
    lines = fold(clean, width)
    assert "".join(lines) == clean
    assert all(cell_len(line) <= width for line in lines)


@given(TEXT, st.integers(min_value=1, max_value=60))
def test_fitting_fits(text: str, width: int) -> None:
    assert cell_len(fit(strict(text), width)) <= width


@given(TEXT, WIDTH)
def test_breaking_at_words_loses_nothing_but_blanks(text: str, width: int) -> None:
    lines = break_words(strict(text), width)
    assert "".join(lines).replace(" ", "") == strict(text).replace(" ", "")
    assert all(cell_len(line) <= width for line in lines)


# ── lines ───────────────────────────────────────────────────────────────────────────────────


def plain(line: list[tuple[str, str]]) -> str:
    return "".join(text for _, text in line)


CALLS = st.builds(
    lambda name, arguments: ToolCall(id="1", name=name, arguments=arguments),
    TEXT,
    st.dictionaries(TEXT, st.one_of(TEXT, st.integers(), st.none()), max_size=3),
)


@given(CALLS, WIDTH, st.integers(min_value=0, max_value=3))
def test_a_call_is_one_line_that_fits(made: ToolCall, width: int, depth: int) -> None:
    line = plain(call_line(strict(made.name), made, depth, width))
    assert cell_len(line) <= width
    assert line.isprintable()


def test_a_call_with_arguments_that_are_no_json_shows_them() -> None:
    assert plain(call_line("x", raw_call("x", "{oops\n"), 0, 80)) == "→ x({oops\\n)"
    assert plain(call_line("x", call("x", a=1, b="c"), 0, 80)) == '→ x(a=1, b="c")'


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ToolResult({"a": [1, None]}), '{"a": [1, null]}'),
        (ToolResult("two\nlines"), '"two\\nlines"'),
        (ToolFailure("no"), "no"),
        (ToolFailure("no", type="ValueError"), "ValueError: no"),
        (ToolFailure("not now", type="Denied"), "not now"),
    ],
)
def test_a_result_is_one_line(result: ToolResult | ToolFailure, text: str) -> None:
    assert result_text(result) == text


@given(TEXT, TEXT, WIDTH, st.integers(min_value=1, max_value=9999))
def test_a_hook_is_one_line_that_ends_with_what_it_decided(
    point: str, name: str, width: int, times: int
) -> None:
    fired = HookRun(
        chat_id="", point=point, hook=name, outcome="changed", seconds=0.0123, times=times
    )
    line = plain(hook_line(fired, max(width, 40)))
    assert cell_len(line) <= max(width, 40)
    assert line.endswith(f" changed ×{times} 12.3 ms" if times > 1 else " changed 12.3 ms")


# ── questions ───────────────────────────────────────────────────────────────────────────────


def asked(arguments: dict[str, object], *prompts: str, width: int = 80) -> list[str]:
    request = ApprovalRequest(
        id="1", call=call("save", arguments), prompts=prompts, chat_id="", conversation_id=None,
        iteration=0, digest="",
    )  # fmt: skip
    return [plain(line) for line in question(request, 1, 1, width)]


@given(st.dictionaries(TEXT, st.one_of(TEXT, st.lists(TEXT))), st.lists(TEXT, max_size=2), WIDTH)
def test_a_question_is_framed_fits_and_shows_all(
    arguments: dict[str, object], prompts: list[str], width: int
) -> None:
    empty, title, *lines = asked(arguments, *prompts, width=width)
    assert (empty, title) == ("", "? May this run?")
    assert all(cell_len(line) <= width and line.isprintable() for line in lines)
    assert all(line[:2] in ("│ ", "│┄", "├ ") for line in lines)
    assert [line for line in lines if line.startswith("├")] == ["├ save"]
    whole = "".join(line[2:].strip() for line in lines).replace("┆", "").replace(" ", "")
    for value in arguments.values():
        if isinstance(value, str) and "\n" not in value:
            shown = strict(json.dumps(value, ensure_ascii=False))
            assert shown.replace("┆", "").replace(" ", "") in whole


def test_what_an_argument_quotes_is_not_taken_for_a_line_of_its_own() -> None:
    """A long value that reads like another argument, and a prompt that reads like the call."""
    value = "x" * 20 + ' path = "harmless.txt"'
    prompt = 'Really?\nsave\n  path = "harmless.txt"'
    assert asked({"text": value, "path": "secret.txt"}, prompt, width=32)[2:] == [
        "│ Really?",
        "│ save",
        '│   path = "harmless.txt"',
        "├ save",
        '│   text = "xxxxxxxxxxxxxxxxxxxx',
        '│┄   path = \\"harmless.txt\\""',
        '│   path = "secret.txt"',
    ]


def test_arguments_of_every_shape_are_shown_whole() -> None:
    arguments = {"a b": 1, "text": "one\ntwo \n", "deep": {"list": [1, "x" * 20]}, "none": None}
    assert asked(arguments, width=32)[2:] == [
        "├ save",
        '│   "a b" = 1',
        "│   text = 3 lines:",
        "│     ┆ one",
        "│     ┆ two\\x20",
        "│     ┆ ",
        "│   deep = {",
        '│     "list": [',
        "│       1,",
        '│       "xxxxxxxxxxxxxxxxxxxx"',
        "│     ]",
        "│   }",
        "│   none = null",
    ]
    assert asked({})[-1] == "│   without arguments"


def fired(hook: str, point: str, outcome: str) -> HookRun:
    return HookRun(chat_id="", point=point, hook=hook, outcome=outcome, seconds=1.0)


def test_hooks_at_deltas_are_counted_and_others_are_not() -> None:
    hooks: list[HookRun] = []
    for hook, point, outcome in [
        ("a", "onDelta", "ok"), ("b", "onDelta", "ok"), ("a", "onDelta", "changed"),
        ("a", "onStatus", "ok"), ("a", "onStatus", "ok"), ("a", "onDelta", "ok"),
    ]:  # fmt: skip
        hooks = add_up(hooks, fired(hook, point, outcome))
    assert [(each.hook, each.point, each.outcome, each.times) for each in hooks] == [
        ("a", "onDelta", "changed", 3),
        ("b", "onDelta", "ok", 1),
        ("a", "onStatus", "ok", 1),
        ("a", "onStatus", "ok", 1),
    ]
    assert hooks[0].seconds == 3.0


@given(st.dictionaries(TEXT, st.one_of(TEXT, st.integers(), st.lists(TEXT))))
def test_arguments_to_be_edited_are_the_same_json_without_what_is_not_seen(
    arguments: dict[str, object],
) -> None:
    text = editable(arguments)
    assert text.isprintable()
    assert json.loads(text) == arguments
