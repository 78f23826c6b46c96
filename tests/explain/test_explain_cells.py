"""Addresses of cells: what they spell, what they point to, and what is said of those that do not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attnctl
from attnctl.base.errors import AttnError
from attnctl.math.derivation import Step
from attnctl.math.ops import Unstated
from attnctl.record import Trace
from attnctl.record.cells import (
    Address,
    Speller,
    Token,
    parse_address,
    parse_start,
    spell_cell,
    spellings,
)
from attnctl.verbs.explain import explain

THE = Token("the")


@pytest.mark.parametrize(
    ("text", "step", "parts"),
    [
        ("scores", "scores", ()),
        ("scores[0,love,AI]", "scores", (0, Token("love"), Token("AI"))),
        (" scores[ -1 , : ,the ] ", "scores", (-1, None, THE)),
        ("X[the#2,3]", "X", (Token("the", 2), 3)),
        ('X["the"#2,3]', "X", (Token("the", 2), 3)),
        ('X["the#2"]', "X", (Token("the#2"),)),
        ('X["7"]', "X", (Token("7"),)),
        ('X[":"]', "X", (Token(":"),)),
        ('X["a, b]"]', "X", (Token("a, b]"),)),
        (r'X["\"\\\t☃"]', "X", (Token('"\\\t☃'),)),
        ('X[""]', "X", (Token(""),)),
        ("X[[PAD],[UNK]#2]", "X", (Token("[PAD]"), Token("[UNK]", 2))),
        ("X[#2]", "X", (Token("#2"),)),
        ("X[C#]", "X", (Token("C#"),)),
        ("X[a#b#3]", "X", (Token("a#b", 3),)),
        ("X[+1,1.5,−1,١]", "X", (Token("+1"), Token("1.5"), Token("−1"), Token("١"))),
        ("X[New York]", "X", (Token("New York"),)),
    ],
)
def test_parse(text, step, parts):
    assert parse_address(text) == Address(step, parts)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no step to begin with"),
        ("[0]", "no step to begin with"),
        ("scores[]", "a place is missing"),
        ("scores[0,]", "a place is missing"),
        ("scores[0, ,1]", "a place is missing"),
        ("scores[0", "its bracket is not closed"),
        ("scores[0]]", "']' after the cell"),
        ("scores[0] x", "'x' after the cell"),
        ('scores["a]', 'must end in "'),
        ('scores["a"b]', 'must end in "'),
        (r'scores["\q"]', "a \\ in quotes that means nothing"),
        ("scores[99999999999999999999]", "is too large for an index"),
        ("scores[" + "9" * 5000 + "]", "is too large for an index"),
    ],
)
def test_what_spells_no_cell_is_refused(text, said):
    with pytest.raises(AttnError, match=r"^[^\n]{1,300}$") as error:
        parse_address(text)
    assert said in str(error.value)


def test_an_edit_begins_with_an_address():
    assert parse_start("attention_weights[0,love,:]=0") == (
        Address("attention_weights", (0, Token("love"), None)),
        "=0",
    )
    assert parse_start("attention_weights=@other.json") == (Address("attention_weights"), "=@other.json")


def a_trace(tokens=("the", "cat", "the"), heads=2):
    size = len(tokens)
    array = np.arange(heads * size * size, dtype=float).reshape(heads, size, size)
    steps = {
        "scores": Step("scores", Unstated(), (), ("head", "query", "key"), "", "S"),
        "X": Step("X", Unstated(), (), ("token", "d_model"), "", "X"),
    }
    return Trace(steps, {"scores": array, "X": array[0]}, {"tokens": list(tokens)})


@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("scores[1,cat,2]", (1, 1, 2)),
        ("scores[-1,-1,-3]", (1, 2, 0)),
        ("scores[0,the#2,the#1]", (0, 2, 0)),
        ("scores", (slice(None),) * 3),
        ("scores[1]", (1, slice(None), slice(None))),
        ("scores[:,cat]", (slice(None), 1, slice(None))),
        ("X[cat]", (1, slice(None))),
    ],
)
def test_resolve(text, index):
    assert parse_address(text).resolve(a_trace()) == index


@pytest.mark.parametrize(
    ("text", "edited", "explained"),
    [
        ("scores[cat,the#2]", (0, 1, 2), (0, 1, 2)),
        ("scores[cat,1]", (0, 1, 1), (0, 1, 1)),
        ("scores[cat]", (0, 1, slice(None)), None),
        ("scores[0,1]", (0, 1, slice(None)), (0, 0, 1)),
    ],
)
def test_the_head_may_be_left_out_where_there_is_one(text, edited, explained):
    trace = a_trace(heads=1)
    assert parse_address(text).resolve(trace) == edited
    if explained:
        assert parse_address(text).cell(trace) == explained
    else:
        with pytest.raises(AttnError, match="3 cells, expected one"):
            parse_address(text).cell(trace)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("scoers[0,0,0]", "no step 'scoers' in this dump; did you mean scores?"),
        ("foo", "no step 'foo' in this dump; it has scores, X"),
        ("scores[2,0,0]", "scores: no head 2; there are 2: use 0 to 1"),
        ("scores[0,-4,0]", "scores: no query -4; there are 3: use 0 to 2"),
        ("scores[0,Cat,0]", "scores: query: no token 'Cat'; did you mean cat?"),
        ("scores[0,0,dog]", "scores: key: no token 'dog'; it has the#1, cat, the#2"),
        ("scores[0,the,0]", "scores: query: 'the' stands there 2 times; write the#1 or the#2"),
        ("scores[0,the#3,0]", "scores: query: 'the' stands there 2 times; write the#1 or the#2"),
        ("scores[0,cat#2,0]", "scores: query: 'cat' stands there once; write cat"),
        ("scores[cat,0,0]", "scores: head has no tokens, so 'cat' is not on it; use an index from 0"),
        ("X[cat,0,0]", "X: 3 places named, but it has the axes (token, d_model)"),
    ],
)
def test_what_cannot_be_found_is_named(text, said):
    with pytest.raises(AttnError) as error:
        parse_address(text).resolve(a_trace())
    assert str(error.value) == said


def test_one_cell_is_asked_for():
    with pytest.raises(AttnError) as error:
        parse_address("scores[0]").cell(a_trace())
    assert str(error.value) == (
        "scores: 9 cells, expected one; name a place along each of (head, query, key), "
        "like scores[0,the#1,the#1]"
    )


def test_tokens_are_quoted_and_numbered_only_where_they_must_be():
    assert spellings(["7", "the", "a b", "the", "the#2", "[PAD]", 'say "hi"', "x,y", ""]) == [
        '"7"', "the#1", "a b", "the#2", '"the#2"', "[PAD]", r'"say \"hi\""', '"x,y"', '""',
    ]  # fmt: skip


def test_the_keys_of_cross_attention_have_tokens_of_their_own():
    trace = attnctl.run("I love AI", context="you love cats too")
    assert parse_address("scores[0,I,cats]").resolve(trace) == (0, 0, 2)
    assert spell_cell(trace, "V", (0, 3, 1)) == "V[0,too,1]"


@given(st.text() | st.text("scores[],:\"\\#-0123 'ab"))
def test_any_text_is_an_address_or_refused(text):
    try:
        address = parse_address(text)
    except AttnError:
        return
    assert isinstance(address, Address)
    assert address.step


@given(
    st.data(),
    st.lists(
        st.text(max_size=6) | st.sampled_from(["the", "7", "the#2", ":", "#", '"']), min_size=1, max_size=6
    ),
)
def test_what_is_spelled_reads_back(data, tokens):
    trace = a_trace(tokens)
    cell = data.draw(st.tuples(*(st.integers(0, size - 1) for size in trace["scores"].shape)))
    text = Speller(trace)("scores", cell)
    assert parse_address(text).resolve(trace) == parse_address(text).cell(trace) == cell


@given(st.text(max_size=20) | st.text('scores[],:"#-012the', max_size=20))
def test_any_text_resolves_or_is_refused(text):
    try:
        places = parse_address(text).resolve(a_trace())
    except AttnError:
        return
    a_trace()[parse_address(text).step][places]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("A[1,love,AI]", "attention_weights[1,love,AI]"),
        ("S[0,I,I]", "scores[0,I,I]"),
        ("Z[1,love,0]", "head_outputs[1,love,0]"),
        ("Y[AI,3]", "output[AI,3]"),
        ("Q[0,I,1]", "Q[0,I,1]"),
    ],
)
def test_a_step_may_be_written_with_its_symbol(written, meant):
    trace = attnctl.run("I love AI", heads=2)
    assert explain(trace, written).name == meant
