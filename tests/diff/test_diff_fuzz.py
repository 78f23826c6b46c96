"""Whatever two files hold, comparing them ends in an answer or in one clear error."""

from contextlib import suppress
from functools import partial
from io import StringIO

import numpy as np
from diff_traces import AXES, trace_of
from hypothesis import given, settings
from hypothesis import strategies as st

import attnctl
from attnctl.drawing.screen.output import PlainOutput, print_view
from attnctl.store.files import json_text
from attnctl.verbs.diff.view import difference_lines

SIZES = st.sampled_from([0, 1, 1, 2, 2, 2, 3])
NUMBERS = st.sampled_from([0.0, 1.0, -2.5, 1e308, 5e-324, float("nan"), float("inf"), float("-inf")])
KINDS = st.sampled_from(["float64", "float32", "float16", "int64", "bool"])


@st.composite
def arrays(draw, name):
    """An array of the usual shape for its name, more often than not."""
    dims = draw(st.sampled_from([len(AXES[name])] * 4 + [0, 1, 2, 3, 4]))
    shape = tuple(draw(SIZES) for _ in range(dims)) if draw(st.booleans()) else (2,) * dims
    array = np.random.RandomState(draw(st.integers(0, 3))).standard_normal(shape)
    if array.size and draw(st.integers(0, 3)) == 0:
        array.flat[0] = draw(NUMBERS)
    with np.errstate(all="ignore"):
        return array.astype(draw(KINDS)) if draw(st.booleans()) else array


@st.composite
def traces(draw):
    names = draw(st.sets(st.sampled_from(list(AXES)), min_size=1))
    if draw(st.booleans()):
        names |= {"attention_weights", "V", "head_outputs", "concat", "output", "W_O"}
    words = draw(st.none() | st.lists(st.sampled_from("abc"), max_size=3).map(" ".join))
    return trace_of({name: draw(arrays(name)) for name in AXES if name in names}, words)


@settings(max_examples=250, deadline=None)
@given(traces(), traces(), st.booleans(), st.booleans())
def test_an_answer_or_an_error(a, b, by_position, equal_nan):
    with suppress(attnctl.AttnError):
        found = attnctl.diff(a, b, by_position=by_position, equal_nan=equal_nan)
        assert found.steps
        json_text(found.to_dict())
        print_view(partial(difference_lines, found), PlainOutput(StringIO()))
        assert attnctl.diff(a, a, equal_nan=True).same
