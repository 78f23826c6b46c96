"""Anyone's text on a screen: nothing invisible, nothing obeyed, everything measured."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from attnctl.drawing.screen import text

UNHURRIED = settings(deadline=None)

ANYTHING = st.text(st.characters(codec=None))


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        ("love", "love"),
        ("[red]", "[red]"),
        ("[/INST]", "[/INST]"),
        ("[PAD]", "[PAD]"),
        (":smile:", ":smile:"),
        ("日本語", "日本語"),
        ("🙂", "🙂"),
        ("❤\ufe0f", "❤\ufe0f"),
        ("e\u0301", "e\u0301"),
        ("नमस्ते", "नमस्ते"),
        ("", '""'),
        (" ", "␣"),
        (" love", "␣love"),
        ("a b", "a␣b"),
        ("\t", "\\t"),
        ("\r\n", "\\r\\n"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x00", "\\x00"),
        ("\x7f\x9b", "\\x7f\\x9b"),
        ("\u202eevil", "\\u202eevil"),
        ("\u2066x\u2069", "\\u2066x\\u2069"),
        ("a\u200bb", "a\\u200bb"),
        ("👩🏽\u200d💻", "👩🏽\\u200d💻"),
        ("🏳\ufe0f🌈", "🏳\ufe0f🌈"),
        ("a\u200d👧", "a\\u200d👧"),
        ("\ufeff", "\\ufeff"),
        ("\xa0", "\\xa0"),
        ("\u2028", "\\u2028"),
        ("\U000e0041", "\\U000e0041"),
        ("\udc80", "\\udc80"),
        ("\u3164", "\\u3164"),
        ("\u0301", "◌\u0301"),
        ("\x1b\u0301", "\\x1b◌\u0301"),
        ("\ufe0f", "\\ufe0f"),
    ],
)
def test_tokens_are_seen_and_never_obeyed(token, shown):
    assert text.token_text(token) == shown


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        ("👩\u200d🚀", "👩\u200d🚀"),
        ("👩🏽\u200d💻", "👩🏽\u200d💻"),
        ("🏳\ufe0f\u200d🌈", "🏳\ufe0f\u200d🌈"),
        ("a\u200d👧", "a\\u200d👧"),
        ("👩\u200d", "👩\\u200d"),
        ("👩\u200d\u200d👧", "👩\\u200d\\u200d👧"),
        ("👩\u200b👧", "👩\\u200b👧"),
    ],
)
def test_emoji_are_whole_in_pictures(token, shown):
    assert text.token_text(token, joined=True) == shown


@UNHURRIED
@given(ANYTHING)
def test_nothing_invisible_reaches_the_screen(token):
    shown = text.token_text(token)
    assert shown.strip()
    assert all(unicodedata.category(char)[0] not in "CZ" for char in shown.replace("\u200d", ""))
    assert text.visible(shown) == shown


@pytest.mark.parametrize(
    "encoding", ["ascii", "latin-1", "cp437", "cp1252", "shift_jis", "utf-8", "utf-16"]
)
@UNHURRIED
@given(token=ANYTHING)
def test_every_encoding_can_print_every_token(encoding, token):
    text.token_text(token, encoding).encode(encoding)


@pytest.mark.parametrize(
    ("formula", "encoding", "spelled"),
    [
        ("Q Kᵀ / √d_k", "utf-8", "Q Kᵀ / √d_k"),
        ("Q Kᵀ / √d_k", "ascii", "Q K^T / sqrt d_k"),
        ("c · tanh(S / c)", "latin-1", "c · tanh(S / c)"),
        ("c · tanh(S / c)", "ascii", "c * tanh(S / c)"),
        ("else −∞", "ascii", "else -inf"),
        ("… 24 more", "ascii", "... 24 more"),
        ("日本", "ascii", "\\u65e5\\u672c"),
    ],
)
def test_symbols_are_spelled_out_where_they_cannot_be_written(formula, encoding, spelled):
    assert text.encodable(formula, encoding) == spelled


@UNHURRIED
@given(st.text(st.characters(exclude_categories=["C", "Z"]) | st.sampled_from("ᵀ√·−∞×…–─│╭╮╰╯├┤┬┴┼")))
def test_cells_are_rich_cells(token):
    assert text.cells(token) == cell_len(token)


@UNHURRIED
@given(ANYTHING.map(text.token_text), st.integers(1, 30))
def test_shortened_text_fits_and_says_so(token, width):
    short = text.shorten(token, width)
    assert cell_len(short) <= width
    assert short == token if cell_len(token) <= width else "…" in short


def test_the_beginning_and_the_end_of_a_long_token_stay():
    assert text.shorten("internationalization", 12) == "internat…ion"


@UNHURRIED
@given(ANYTHING.map(text.visible), st.integers(-3, 30))
def test_folded_lines_fit_or_are_one_character_and_lose_nothing_but_spaces(sentence, width):
    lines = text.fold_text(sentence, width)
    assert all(cell_len(line) <= width or len(line) <= 1 for line in lines)
    assert "".join(lines).replace(" ", "") == sentence.replace(" ", "")


def test_folding_breaks_at_spaces():
    assert text.fold_text("the quick brown fox", 10) == ["the quick", "brown fox"]


def test_our_own_symbols_are_a_cell_each():
    """As the tables of Unicode have it, which are then not read."""
    assert all(cell_len(chr(code)) == 1 for code in text.NARROW)
