"""What an edit spells, and what spells none."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnctl
from attnctl.record.cells import Address, Token
from attnctl.record.edits import parse_edit, what_if
from attnctl.store.source import read_one

SPELLED = [
    ("scores[0,love,:]=0", Address("scores", (0, Token("love"), None)), "=", 0.0),
    ("head_outputs[1] = 0.5", Address("head_outputs", (1,)), "=", 0.5),
    ("scores=-1", Address("scores"), "=", -1.0),
    ("scores*=2e-3", Address("scores"), "*=", 0.002),
    ("scores[0]*=.5", Address("scores", (0,)), "*=", 0.5),
    ("X += +1.", Address("X"), "+=", 1.0),
    ("X+=1", Address("X"), "+=", 1.0),
    ("masked_scores[0,0]=-inf", Address("masked_scores", (0, 0)), "=", float("-inf")),
    ("masked_scores=−Infinity", Address("masked_scores"), "=", float("-inf")),
    ("X[0]=−0.25", Address("X", (0,)), "=", -0.25),
    ("mask[0,1]=TRUE", Address("mask", (0, 1)), "=", 1.0),
    ("mask[0,1]=false", Address("mask", (0, 1)), "=", 0.0),
    ('X["a=1, b]",0]=2', Address("X", (Token("a=1, b]"), 0)), "=", 2.0),
    ("X[the#2,[PAD]]=3", Address("X", (Token("the", 2), Token("[PAD]"))), "=", 3.0),
]  # fmt: skip


@pytest.mark.parametrize(("text", "address", "rule", "value"), SPELLED, ids=[each[0] for each in SPELLED])
def test_edits(text, address, rule, value):
    edit = parse_edit(text, read_one)
    assert (edit.address, edit.rule, edit.value, edit.text) == (address, rule, value, text)


ROWS = [
    ("X[love]=[1, 0, −2.5, .5]", [1, 0, -2.5, 0.5]),
    ("scores[0] += [[1,2],\n[true, -inf]]", [[1, 2], [1, float("-inf")]]),
    ("X*=[[[1]]]", [[[1]]]),
]


@pytest.mark.parametrize(("text", "rows"), ROWS, ids=[each[0] for each in ROWS])
def test_rows_and_matrices(text, rows):
    value = parse_edit(text, read_one).value
    assert (value.dtype, value.tolist()) == (np.float64, rows)


SPELLED_NOT = [
    ("X[0]=[1, 2", "no row or matrix"),
    ("X[0]=[[1, 2], [3]]", "no row or matrix"),
    ("X[0]=[1 2]", "no row or matrix"),
    ("X[0]=[1, nan]", "'nan' is neither a number"),
    ("X[0]=[]]", "no row or matrix"),
    ("X[0]=" + "[" * 10**5, "no row or matrix"),
    ("", "no step to begin with"),
    ("=0", "no step to begin with"),
    ("X", "expected =, \\+= or \\*= and a value"),
    ("X[0]", "expected ="),
    ("X[0]=", "expected ="),
    ("X=", "expected ="),
    ("X[0]-=1", "expected ="),
    ("X[0]==1", "'=1' is neither a number, mean nor @FILE"),
    ("X[0]=nan", "'nan' is neither"),
    ("X[0]=inf", "'inf' is neither"),
    ("X[0]=1_000", "neither"),
    ("X[0]=0x10", "neither"),
    ("X[0]=1 2", "neither"),
    ("X[0]=٣", "neither"),
    ("X[0=1", "bracket is not closed"),
    ("X[]=1", "a place is missing"),
    ("X[0]=@", "cannot be read"),
    ("X[0]=@no-such-file.json", "no-such-file.json: cannot be read: No such file"),
]


@pytest.mark.parametrize(("text", "message"), SPELLED_NOT, ids=[each[0] for each in SPELLED_NOT])
def test_what_is_no_edit(text, message):
    with pytest.raises(attnctl.AttnError, match=message):
        what_if([text], read_one)


def test_every_one_that_is_wrong_is_told():
    with pytest.raises(attnctl.AttnError) as caught:
        what_if(["X=1", "X", "Y[0]=nan"], read_one)
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["edit 'X'", "edit 'Y[0]=nan'"]


STEPS = ["X", "scores", "attention_weights", "mask", "head_outputs", "nothing", ""]
PLACES = ["0", "-1", "love", ":", "the#2", '"a,b"', "9" * 30, "[PAD]", " ", "", "]", ","]
VALUES = ["0", "-inf", "1e400", "0.5", "nan", "true", "@", "@missing", "", "=", "١"]
TEXTS = st.text() | st.builds(
    lambda step, places, rule, value: f"{step}[{','.join(places)}]{rule}{value}",
    st.sampled_from(STEPS),
    st.lists(st.sampled_from(PLACES), max_size=4),
    st.sampled_from(["=", "+=", "*=", "-=", "", " = "]),
    st.sampled_from(VALUES),
)


@settings(max_examples=2000, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=2))
def test_whatever_is_written_ends_in_a_trace_or_in_one_clear_error(texts):
    with suppress(attnctl.AttnError):
        trace = attnctl.run("I love AI", heads=2, edits=tuple(texts))
        assert [each["edit"] for each in trace.header["edits"]] == texts
