"""Relative biases of a file as a table and its index: Swin's windows, T5's buckets."""

import numpy as np
import pytest
from plainly import attend, causal, draw

import attnctl

HEADS, HEIGHT, WIDTH = 4, 2, 3
TOKENS = HEIGHT * WIDTH
NUMBERS = (2 * HEIGHT - 1) * (2 * WIDTH - 1)


def distances():
    """Rows and columns between the tokens of a window."""
    places = [(row, column) for row in range(HEIGHT) for column in range(WIDTH)]
    rows = np.array([[a[0] - b[0] for b in places] for a in places])
    columns = np.array([[a[1] - b[1] for b in places] for a in places])
    return rows, columns


ROWS, COLUMNS = distances()
INDEX = (ROWS + HEIGHT - 1) * (2 * WIDTH - 1) + COLUMNS + WIDTH - 1
(TABLE,) = draw((NUMBERS, HEADS), seed=1)  # as Swin keeps it
RIGHT = np.array([TABLE[:, head][INDEX] for head in range(HEADS)])


def windows(added, **beside):
    """What a layer of Swin records whose scores have this bias."""
    q, k, v = draw(*[(5, HEADS, TOKENS, 8)] * 3)
    weights, _ = attend(q, k, v, bias=added)
    names = {"relative_position_bias_table": TABLE, "relative_position_index": INDEX}
    return {"q": q, "k": k, "v": v, "attn_probs": weights, **names, **beside}


OTHER_LAYOUTS = {
    "as it is": {},
    "under the path of a module": {
        "relative_position_bias_table": None,
        "layers.0.attn.relative_position_bias_table": TABLE,
    },
    "an index in one row": {"relative_position_index": INDEX.reshape(-1)},
    "our names": {
        "relative_position_bias_table": None,
        "relative_position_index": None,
        "bias_table": TABLE.T,
        "bias_index": INDEX,
    },
    "with the bias itself": {"bias": RIGHT},
}


@pytest.mark.parametrize("beside", OTHER_LAYOUTS.values(), ids=OTHER_LAYOUTS)
def test_a_right_bias_agrees(beside):
    arrays = {name: x for name, x in windows(RIGHT, **beside).items() if x is not None}
    report = attnctl.check(arrays)
    assert report.agrees is True, str(report)


def read_by(index):
    return TABLE[index].transpose(2, 0, 1)


SHORT_ROWS = (ROWS + HEIGHT - 1) * (2 * HEIGHT - 1) + COLUMNS + WIDTH - 1
EXCHANGED = (COLUMNS + WIDTH - 1) * (2 * HEIGHT - 1) + ROWS + HEIGHT - 1
NOT_MOVED = ROWS * (2 * WIDTH - 1) + COLUMNS
WRONG = {
    "its index is transposed": read_by(INDEX.T),
    "viewed as (head, query, key)": TABLE[INDEX].reshape(HEADS, TOKENS, TOKENS),
    "viewed as (head, number)": TABLE.reshape(HEADS, NUMBERS)[:, INDEX],
    "the first head's numbers": np.repeat(RIGHT[:1], HEADS, axis=0),
    "2 · height − 1 long": read_by(SHORT_ROWS),
    "rows and columns of the window are exchanged": read_by(EXCHANGED),
    "not moved to begin at 0": read_by(NOT_MOVED),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("recorded", [False, True], ids=["weights alone", "the bias, too"])
@pytest.mark.parametrize(("words", "bias"), WRONG.items(), ids=WRONG)
def test_a_bias_that_is_read_wrongly_is_named(words, bias, recorded):
    report = attnctl.check(windows(bias, **({"bias": bias} if recorded else {})))
    assert (report.agrees, report.mistake) == (False, "bias-table-read"), str(report)
    assert words in str(report)


def bucket(ahead, *, both_ways, numbers=8, furthest=128):
    """T5's bucket of one distance."""
    start = 0
    if both_ways:
        numbers //= 2
        start = numbers if ahead > 0 else 0
        distance = abs(ahead)
    else:
        distance = max(-ahead, 0)
    exact = numbers // 2
    if distance < exact:
        return start + distance
    grown = exact + int(np.log(distance / exact) / np.log(furthest / exact) * (numbers - exact))
    return start + min(grown, numbers - 1)


def t5(queries, keys, *, sign=1, first=None, **how):
    """The bias of T5's layer whose queries are the last tokens, or begin at `first`."""
    (table,) = draw((8, 2), seed=2)
    first = keys - queries if first is None else first
    ahead = [[sign * (j - i) for j in range(keys)] for i in range(first, first + queries)]
    index = np.array([[bucket(each, **how) for each in row] for row in ahead])
    return table, np.array([table[:, head][index] for head in range(2)])


def layer(queries=12, keys=12, *, decodes, **wrong):
    q, k, v = draw((2, queries, 8), (2, keys, 8), (2, keys, 8))
    table, bias = t5(queries, keys, **{"both_ways": not decodes, **wrong})
    weights, out = attend(q, k, v, bias=bias, seen=causal(queries, keys) if decodes else None, scale=1)
    arrays = {"Q": q, "K": k, "V": v, "attention_weights": weights, "output": out}
    if keys > queries:
        past = keys - queries
        arrays |= {"past_key": k[:, :past], "K": k[:, past:], "past_value": v[:, :past], "V": v[:, past:]}
    return {**arrays, "relative_attention_bias.weight": table}


@pytest.mark.parametrize(("queries", "decodes"), [(12, False), (12, True), (3, True)])
def test_buckets_of_t5_agree(queries, decodes):
    arrays = layer(queries, 12, decodes=decodes)
    report = attnctl.check(arrays, scale=1, causal=decodes)
    assert report.agrees is True, str(report)
    assert "T5's buckets" in " ".join(report.notes)


SLIPS = {
    "no buckets of their own, as in a decoder": ({"decodes": False, "both_ways": False}, 12),
    "for keys ahead, as in an encoder": ({"decodes": True, "both_ways": True}, 12),
    "query − key is taken for key − query": ({"decodes": False, "sign": -1}, 12),
    "grow up to a distance of 20": ({"decodes": False, "furthest": 20}, 12),
    "taken for the first tokens": ({"decodes": True, "first": 0}, 3),
}


@pytest.mark.sample(6)
@pytest.mark.parametrize(("words", "slip"), SLIPS.items(), ids=SLIPS)
def test_wrong_buckets_are_named(words, slip):
    how, queries = slip
    report = attnctl.check(layer(queries, 12, **how), scale=1, causal=how["decodes"])
    assert (report.agrees, report.mistake) == (False, "bias-buckets"), str(report)
    assert words in str(report)


def test_attend_reads_the_table_and_its_dump_says_the_index(tmp_path):
    q, k, v = draw(*[(HEADS, TOKENS, 8)] * 3)
    arrays = {"Q": q, "K": k, "V": v, "bias_table": TABLE.T, "bias_index": INDEX}
    trace = attnctl.attend(arrays, backward=True)
    np.testing.assert_allclose(trace["bias"], RIGHT)
    by_number = np.zeros((HEADS, NUMBERS))
    for i, row in enumerate(INDEX):
        for j, number in enumerate(row):
            by_number[:, number] += trace["d_bias"][:, i, j]
    np.testing.assert_allclose(trace["d_bias_table"], by_number, atol=1e-12)
    trace.save(tmp_path / "dump.json")
    assert attnctl.check(attnctl.load(tmp_path / "dump.json")).agrees is True


MISFITS = {
    "bias_table: 15 × 3, expected .head, number. for 4 heads": {"bias_table": TABLE[:, :3]},
    "bias_index: 5 × 6, expected .6, 6. whole numbers from 0 to 14": {"bias_index": INDEX[:5]},
    "both say what is added": {"bias": RIGHT},
}


@pytest.mark.parametrize(("words", "beside"), MISFITS.items(), ids=MISFITS)
def test_a_table_that_does_not_fit_is_refused(words, beside):
    q, k, v = draw(*[(HEADS, TOKENS, 8)] * 3)
    arrays = {"Q": q, "K": k, "V": v, "bias_table": TABLE.T, "bias_index": INDEX, **beside}
    with pytest.raises(attnctl.AttnError, match=words):
        attnctl.attend(arrays)
