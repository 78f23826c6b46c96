"""CSV in long form: a line a number, harmless in a spreadsheet, streamed."""

import csv
import io
import tracemalloc

import numpy as np
import pytest
from store_examples import carried_out, of_arrays

from attnctl.math.derivation import Step
from attnctl.math.ops import Unstated
from attnctl.record import Trace
from attnctl.store.long_csv import write_csv


def written(*traces):
    stream = io.StringIO()
    write_csv(traces, stream)
    return stream.getvalue()


def rows_of(*traces):
    """The lines as the standard library reads them."""
    return list(csv.DictReader(io.StringIO(written(*traces), newline="")))


def test_every_number_is_a_line_with_its_place():
    trace = carried_out()
    rows = rows_of(trace)
    assert len(rows) == sum(array.size for array in trace.values())
    weights = [row for row in rows if row["step"] == "attention_weights"]
    assert [(row["head"], row["row"], row["column"]) for row in weights[8:11]] == [
        ("0", "AI", "AI"),
        ("1", "I", "I"),
        ("1", "I", "love"),
    ]
    told = np.array([float(row["value"]) for row in weights]).reshape(2, 3, 3)
    assert told.tobytes() == trace["attention_weights"].tobytes()


@pytest.mark.parametrize(
    ("axes", "shape", "first"),
    [
        ((), (), ("", "", "")),
        (("d_model",), (2,), ("", "", "0")),
        (("head", "d_k"), (2, 2), ("0", "", "0")),
        (("query", "key"), (2, 2), ("", "a", "a")),
        (("token", "d_model"), (2, 3), ("", "a", "0")),
        (("query", "key"), (3, 2), ("", "0", "a")),
        (("head", "query", "key"), (2, 2, 2), ("0", "a", "a")),
        (("axis 0", "axis 1", "axis 2", "axis 3"), (2, 2, 2, 2), ("0/0", "0", "0")),
        (("same", "same", "same", "same"), (2, 2, 2, 2), ("0/0", "0", "0")),
        (("head",), (2,), ("0", "", "")),
    ],
)
def test_where_the_indices_of_each_kind_of_step_stand(axes, shape, first):
    trace = Trace(
        {"x": Step("x", Unstated(), (), axes, "", "")}, {"x": np.ones(shape)}, {"tokens": ["a", "b"]}
    )
    rows = rows_of(trace)
    assert len(rows) == np.prod(shape)
    assert (rows[0]["head"], rows[0]["row"], rows[0]["column"]) == first
    assert len({tuple(row.values()) for row in rows}) == len(rows)


def test_a_batch_has_a_column_of_its_own_and_steps_without_leave_it_empty():
    rows = rows_of(carried_out(batch=True))
    assert list(rows[0]) == ["batch", "step", "head", "row", "column", "value"]
    assert {row["batch"] for row in rows if row["step"] == "scores"} == {"0", "1"}
    assert {row["batch"] for row in rows if row["step"] == "W_O"} == {""}


def test_several_traces_are_numbered():
    rows = rows_of(carried_out(), carried_out(heads=1))
    assert list(rows[0]) == ["trace", "step", "head", "row", "column", "value"]
    assert {row["trace"] for row in rows} == {"0", "1"}


def test_repeated_words_are_told_apart():
    step = Step("scores", Unstated(), (), ("query", "key"), "", "")
    trace = Trace({"scores": step}, {"scores": np.ones((3, 3))}, {"tokens": ["the", "cat", "the"]})
    rows = rows_of(trace)
    assert [row["column"] for row in rows[:3]] == ["the#1", "cat", "the#2"]
    assert len({(row["row"], row["column"]) for row in rows}) == 9


TOKENS = {
    "=1+1": "'=1+1",
    "+x": "'+x",
    "-x": "'-x",
    "@SUM(A1)": "'@SUM(A1)",
    "\tx": "'\tx",
    "\rx": "'\rx",
    "\nx": "'\nx",
    "a,b": "a,b",
    'say "a"': 'say "a"',
    "two\r\nlines": "two\r\nlines",
    "x=1": "x=1",
    "'": "'",
    "": "",
    "猫": "猫",
    " ": " ",
    "\ud800": "\\ud800",
}


@pytest.mark.parametrize("token", TOKENS)
def test_a_token_is_quoted_and_cannot_be_run(token):
    step = Step("=x", Unstated(), (), ("query", "key"), "", "")
    trace = Trace({"=x": step}, {"=x": np.array([[-1.5]])}, {"tokens": [token]})
    (row,) = rows_of(trace)
    assert (row["step"], row["row"], row["column"]) == ("'=x", TOKENS[token], TOKENS[token])
    assert row["value"] == "-1.5"  # a number is never guarded


@pytest.mark.parametrize(
    ("array", "told"),
    [
        (np.array([0.1, -0.0, 1e-5]), ["0.1", "-0.0", "1e-05"]),
        (np.array([np.nan, np.inf, -np.inf]), ["NaN", "Infinity", "-Infinity"]),
        (np.array([True, False]), ["true", "false"]),
        (np.array([1, -2]), ["1", "-2"]),
        (np.array([0.1], dtype=np.float16), ["0.0999755859375"]),
    ],
)
def test_numbers_keep_every_digit(array, told):
    assert [row["value"] for row in rows_of(of_arrays(x=array))] == told


class Nowhere(io.StringIO):
    def write(self, text):
        return len(text)


def test_it_is_written_a_row_at_a_time():
    trace = of_arrays(x=np.zeros((300, 300)))
    tracemalloc.start()
    write_csv([trace], Nowhere())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**18
