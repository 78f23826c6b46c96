"""What is said of a wrong step that no known mistake explains."""

import numpy as np
import planted as own
import pytest
from check_foreign import foreign, meant, quietly
from plainly import causal, draw

import attnctl
from attnctl.math.ops import Hide
from attnctl.mistakes.plants import spoken


def changed(name, change):
    """A run of which one step, and all that follows from it, is made otherwise."""
    arrays = own.attend(own.CAUSAL)
    kept = {each: arrays[each] for each in ("Q", "K", "V", "scores", "scaled_scores")}
    return {**kept, name: change(arrays[name])}


CHANGES = {
    "a factor": ("scores", lambda x: 3.0 * x, "Every number is 3 times what it should be."),
    "a factor near 1": (
        "scores",
        lambda x: 1.0000001 * x,
        "Every number is 1.0000001 times what it should be.",
    ),
    "an offset": ("scaled_scores", lambda x: x - 0.25, "Every number is 0.25 too small."),
    "one head": (
        "scores",
        lambda x: np.where(np.arange(2)[:, None, None] == 1, x[::-1] + x, x),
        "All of them are at head 1.",
    ),
    "one key": (
        "scores",
        lambda x: np.where(np.arange(6) == 4, x**2, x),
        "All of them are at key 4.",
    ),
    "one number": (
        "scores",
        lambda x: np.where(np.arange(x.size).reshape(x.shape) == 40, x * 1.0001, x),
        "They are at head 1, query 0, key 4 only.",
    ),
    "two rows of one head": (
        "scores",
        lambda x: np.stack([x[0], x[1, [0, 1, 3, 2, 4, 5]]]),
        (
            "The right rows stand in other places: in head 1 query 2 holds query 3, query 3 holds query 2. "
            "All of them are at head 1."
        ),
    ),
    "nothing to say": (
        "scores",
        lambda x: np.sin(3 * x),
        "No relation that was tried leads from the wrong numbers to what they should be.",
    ),
}


@pytest.mark.parametrize(("name", "change", "said"), CHANGES.values(), ids=CHANGES)
def test_hints(name, change, said):
    arrays = changed(name, change)
    if name == "scores":
        del arrays["scaled_scores"]
    report = attnctl.check(foreign(arrays), meant(own.CAUSAL))
    assert (report.first, report.mistake) == (name, None)
    assert report.findings[0].hint == said


FORENSICS = {
    "another step": ("scores", lambda x: x + x.swapaxes(-1, -2), "The difference equals what it should be"),
    "a band": (
        "scores",
        lambda x: np.where(np.abs(np.subtract.outer(np.arange(6), np.arange(6))) == 2, x**2 + 1, x),
        "They are where |query − key| is 2.",
    ),
    "some keys": (
        "scores",
        lambda x: np.where(np.isin(np.arange(6), (1, 4)), np.cos(5 * x), x),
        "They are at key 1 and 4 only.",
    ),
}


@pytest.mark.sample(6)
@pytest.mark.parametrize(("name", "change", "said"), FORENSICS.values(), ids=FORENSICS)
def test_what_has_no_name_is_described(name, change, said):
    arrays = changed(name, change)
    if name == "scores":
        del arrays["scaled_scores"]
    report = attnctl.check(foreign(arrays), meant(own.CAUSAL))
    assert (report.first, report.mistake) == (name, None)
    assert report.findings[0].hint.startswith(said)


def described(change):
    """What is said of the scores of many queries, changed so."""
    kind = own.PLAIN.but(n=24)
    arrays = own.attend(kind)
    kept = {"Q": arrays["Q"], "K": arrays["K"], "scores": change(arrays["scores"])}
    return attnctl.check(foreign(kept), meant(kind)).findings[0].hint


WRITTEN_WRONG = " What follows was computed from the right numbers: only those written down here are wrong."


def swap(arrays, *names):
    return dict(arrays, **dict(zip(names, (arrays[name] for name in reversed(names)), strict=True)))


OTHERS = {
    "weights without the mask": (
        lambda a: {**a, "attention_weights": own.softmax(a["scaled_scores"])},
        {"attention_weights": "It is what scaled_scores gives in place of masked_scores." + WRITTEN_WRONG},
    ),
    "a name given twice": (
        lambda a: {**a, "K": a["Q"]},
        {"K": "The numbers are those of Q." + WRITTEN_WRONG},
    ),
    "names mixed up": (
        lambda a: swap(a, "Q", "K"),
        {"Q": "The numbers are what K should be.", "K": "The numbers are what Q should be."},
    ),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize(("change", "said"), OTHERS.values(), ids=OTHERS)
def test_another_array_in_a_step_or_for_it_is_named(change, said):
    trace = attnctl.run("the cat saw the dog run off", heads=2, causal=True)
    changed = change({name: array.copy() for name, array in trace.items()})
    for name in trace:
        trace[name][:] = changed[name]
    found = {finding.step: finding.hint for finding in attnctl.check(trace).findings}
    assert {name: found[name] for name in said} == said


LATER_QUERIES = {
    "one": (
        lambda x: np.where(np.arange(24)[:, None] == 20, np.cos(5 * x), x),
        "All of them are at query 20. This is said of queries 18 to 21; the rest was not searched.",
    ),
    "a band": (
        lambda x: np.where(np.subtract.outer(np.arange(24), np.arange(24)) == 18, np.cos(5 * x), x),
        "They are where key − query is -18. This is said of queries 17 to 20; the rest was not searched.",
    ),
}


@pytest.mark.parametrize(("change", "said"), LATER_QUERIES.values(), ids=LATER_QUERIES)
def test_places_in_a_part_are_those_of_the_whole(change, said, monkeypatch):
    monkeypatch.setattr("attnctl.verbs.check.parts.MANY", 1)
    monkeypatch.setattr("attnctl.verbs.check.parts.FEW", 1)
    assert described(change) == said


def test_a_list_of_most_places_is_not_begun():
    keys = np.arange(24)
    few = described(lambda x: np.where(keys % 3 == 1, np.cos(5 * x), x))
    most = described(lambda x: np.where(keys % 3 != 1, np.cos(5 * x), x))
    assert few.startswith("They are at key 1, 4,")
    assert "They are at" not in most


def test_what_was_not_tried_is_said(monkeypatch):
    monkeypatch.setattr("attnctl.verbs.check.search.MOST_TRIED", 0)
    arrays = changed("scores", lambda x: np.sin(3 * x))
    del arrays["scaled_scores"]
    hint = attnctl.check(foreign(arrays), meant(own.CAUSAL)).findings[0].hint
    assert "Not every pair of mistakes was tried" in hint


@pytest.mark.sample(2)
@pytest.mark.parametrize("decimals", [3, 5])
def test_printed_numbers_are_known_as_such(decimals):
    arrays = own.attend(own.CAUSAL)
    printed = {name: np.round(x, decimals) for name, x in arrays.items() if name in ("scores", "output")}
    report = attnctl.check(foreign({**arrays, **printed}), meant(own.CAUSAL))
    assert not report.agrees
    rounded = {name: np.round(x, decimals) if x.dtype.kind == "f" else x for name, x in arrays.items()}
    for name in ("X", "W_Q", "W_K", "W_V", "W_O"):
        rounded[name] = arrays[name]
    report = attnctl.check(foreign(rounded), meant(own.CAUSAL))
    assert report.findings[0].hint == f"It agrees to {decimals} decimals: add --decimals {decimals}."
    assert attnctl.check(foreign(rounded), meant(own.CAUSAL), decimals=decimals).agrees


def test_a_mistake_is_named_in_printed_numbers_too():
    arrays = own.attend(own.CAUSAL, "mask-ignored")
    rounded = {name: np.round(x, 4) for name, x in arrays.items()}
    report = attnctl.check(foreign(rounded), meant(own.CAUSAL), decimals=4)
    assert report.mistake == "mask-ignored"


@pytest.mark.parametrize(
    ("value", "right", "said"),
    [
        (0.70710678, 1.0, "0.7071"),
        (17**0.5, 1.0, "4.123 (√17)"),
        (-3.0, 1.0, "−3"),
        (1.0, 1.0, "1"),
        (1.000001, 1.0, "1.000001"),
        (0.99999, 1.0, "0.99999"),
        (-1.000001, 1.0, "−1.000001"),
        (2.828429, 8**0.5, "2.828429"),
    ],
)
def test_a_number_is_told_from_the_right_one(value, right, said):
    assert spoken(value, right) == said


FACTORS = {"Q": 2.5, "K": 2.5, "V": 2.5, "head_outputs": 1.000001, "output": -3}


@pytest.mark.parametrize(("name", "factor"), FACTORS.items())
def test_a_factor_is_said_where_it_is(name, factor):
    arrays = own.attend(own.CAUSAL)
    given = {"X": 1, "W_Q": 1, "W_K": 1, "W_V": 1, "W_O": 1, **dict.fromkeys(FACTORS, 1), name: factor}
    kept = {each: by * arrays[each] for each, by in given.items()}
    report = attnctl.check(foreign(kept), meant(own.CAUSAL))
    assert report.first == name
    assert report.findings[0].words == f"{name} is multiplied by {factor}".replace("-", "−")


@pytest.mark.parametrize("lengths", [(6, 3, 2), (5, 3, 3), (6, 1, 4)])
def test_lengths_of_a_batch_are_found_one_by_one(lengths):
    """Of each sequence its own, whichever of them are right."""
    told = {"key_lengths": np.array([6, 4, 4])}
    arrays = own.attend(own.PADDED.but(lengths=lengths))
    given = {name: x for name, x in arrays.items() if name in (*own.INPUTS, "attention_weights")}
    (finding,) = attnctl.check(foreign(given | told), meant(own.PADDED.but(lengths=(6, 4, 4)))).findings
    assert finding.mistake == "padding-lengths"
    assert finding.words == f"padding is taken to begin at {', '.join(map(str, lengths))}"


def beside_a_mask(dtype):
    """Scores that are wrong, of the shape of a mask that stands beside them."""
    q, k, v = draw((1, 6, 8), (1, 6, 8), (1, 6, 8), dtype=dtype)
    mask = causal(6)[None]
    (weights,) = draw((1, 6, 6), seed=5, dtype=dtype)
    return {"Q": q, "K": k, "V": v, "mask": mask, "masked_scores": weights, "attention_weights": weights}


def overflowing():
    """Scores of float16 that overflow, and weights that are NaN."""
    q, k, v = (200 * x for x in draw((2, 6, 8), (2, 6, 8), (2, 6, 8), dtype=np.float16))
    with np.errstate(all="ignore"):
        scores = q @ k.swapaxes(-1, -2)
        scaled = scores / np.float16(8)
        weights = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    arrays = {"Q": q, "K": k, "V": v, "mask": causal(6), "scores": scores, "scaled_scores": scaled}
    return {**arrays, "attention_weights": weights}


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "make", [overflowing, *(lambda kind=kind: beside_a_mask(kind) for kind in (np.float16, np.float32))]
)
def test_a_hint_cannot_cost_the_verdict(make):
    report = quietly(attnctl.check, make())
    assert report.agrees is False


def test_a_hint_that_fails_is_no_hint(monkeypatch):
    def fail(*_):
        raise RuntimeError("this hint is broken")

    monkeypatch.setattr("attnctl.verbs.check.diagnosis.hint", fail)
    name, change, _ = CHANGES["one key"]
    report = attnctl.check(foreign(changed(name, change)), meant(own.CAUSAL))
    assert (report.agrees, report.mistake, report.findings[0].hint) == (False, None, "")


def test_a_mask_of_numbers_is_refused_as_a_wrong_shape_is():
    scores = np.zeros((1, 2, 3))
    for mask in (np.ones((2, 3)), np.ones((2, 4), bool)):
        with pytest.raises(ValueError, match=r"numbers|broadcast"):
            Hide().apply(scores, mask)
