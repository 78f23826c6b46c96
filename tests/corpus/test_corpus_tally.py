"""What sentences add to a tally, by numbers typed in; where their weights come from."""

from __future__ import annotations

import hashlib
from math import log2

import numpy as np
import pytest

from attnctl.base.errors import AttnError
from attnctl.inputs.config.settings import FromFile, Random, Settings
from attnctl.verbs.corpus import sources
from attnctl.verbs.stats import Largest, tally
from attnctl.verbs.stats.tally import Sentences

SENTENCES = Sentences([7, 4], [["a", "b"], ["c", "c"]], [["a", "b"], ["c", "c"]])
WEIGHTS = np.array(
    [
        [[[1, 0], [0.25, 0.75]], [[0, 0], [1, 0]]],
        [[[0.5, 0.5], [0.5, 0.5]], [[0, 1], [0.5, 0.5015]]],
    ]
)
"""(sentence, head, query, key); head 1 has a row that sees nothing, and one that sums to 1.0015."""

H = -0.25 * log2(0.25) - 0.75 * log2(0.75)


def add(weights=WEIGHTS, *, pairs=True, sentences=SENTENCES):
    return tally.tally_of(weights, sentences, pairs=pairs)


@pytest.fixture(params=[1, 2**19], ids=["a row at a time", "at once"])
def block(request, monkeypatch):
    monkeypatch.setattr(tally, "BLOCK", request.param)


@pytest.mark.usefixtures("block")
def test_a_head_adds_up_its_rows():
    head, other = add().heads
    means = {name: each.mean for name, each in head.sums.items()}
    assert means == pytest.approx(
        {
            "entropy": (H + 2) / 4,
            "effective_keys": (1 + 2**H + 2 + 2) / 4,
            "distance": (0 + 0.25 + 0.5 + 0.5) / 4,
            "previous": (0.25 + 0.5) / 2,
            "first": (1 + 0.25 + 0.5 + 0.5) / 4,
            "self": (1 + 0.75 + 0.5 + 0.5) / 4,
            "same_token": (0 + 0 + 0.5 + 0.5) / 4,
        }
    )
    assert {at: n for at, n in enumerate(head.entropies) if n} == {0: 1, 3: 1, 4: 2}
    assert (head.empty_rows, head.uneven_rows) == (0, 0)
    assert (other.empty_rows, other.uneven_rows) == (1, 1)
    assert [other.sums[name].rows for name in ("entropy", "previous", "self")] == [3, 2, 3]


@pytest.mark.usefixtures("block")
def test_the_largest_weight_of_each_sentence_is_kept_with_its_place():
    head, other = add().heads
    assert head.examples == [Largest(1.0, (0, 0), ("a", "a"), 7), Largest(0.5, (0, 0), ("c", "c"), 4)]
    assert other.examples == [Largest(1.0, (0, 1), ("c", "c"), 4), Largest(1.0, (1, 0), ("b", "a"), 7)]


@pytest.mark.usefixtures("block")
def test_two_heads_are_apart_where_both_see_something():
    [(pair, apart)] = add().pairs.items()
    mixed = [0.625, 0.375]  # (0.25, 0.75) and (1, 0)
    first = -sum(p * log2(p) for p in mixed) - H / 2
    second = -0.25 * log2(0.25) - 0.75 * log2(0.75) - 0.5  # (0.5, 0.5) and (0, 1)
    assert (pair, apart.rows) == ((0, 1), 3)
    assert apart.sum == pytest.approx(first + second, abs=1e-6)
    assert add(pairs=False).pairs == {}


def test_half_precision_may_be_further_from_1():
    assert [head.uneven_rows for head in add(WEIGHTS.astype(np.float16)).heads] == [0, 0]


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -0.5])
def test_what_is_no_weight_is_refused_with_its_place(wrong):
    weights = WEIGHTS.copy()
    weights[1, 0, 1, 1] = wrong
    with pytest.raises(AttnError, match=rf"^attention_weights: {wrong} at \[0, 1, 1\]"):
        add(weights)


def test_where_queries_have_no_place_nothing_is_measured_by_place():
    sums = add(sentences=Sentences([7, 4], SENTENCES.tokens, SENTENCES.tokens, None)).heads[0].sums
    assert {name for name, each in sums.items() if not each.rows} == {"distance", "previous", "self"}
    assert sums["same_token"].mean == pytest.approx((1 + 0.75 + 1 + 1) / 4)


@pytest.mark.parametrize(
    ("settings", "count", "expected"),
    [
        (Settings(), 2, sources.MOST_ROWS // 2),
        (Settings(), sources.MOST_ROWS * 3, 1),
        (Settings(embeddings=Random(1, stream="numpy_legacy")), 2, 1),
        (Settings(embeddings="identity"), 2, 1),
        (Settings(embeddings="identity", vocab=("a", "b")), 2, sources.MOST_ROWS // 2),
        (Settings(embeddings={"a": [1.0]}), 2, sources.MOST_ROWS // 2),
    ],
)
def test_sentences_go_together_where_a_row_is_a_tokens_own(settings, count, expected):
    assert sources.DrawnAttention(settings).at_once(count) == expected


def test_the_identity_of_drawn_attention_moves_with_each_file_it_names(tmp_path):
    file = tmp_path / "e.npz"
    settings = Settings(embeddings=FromFile(str(file)))
    file.write_bytes(b"x" * (sources.CHUNK + 1))
    assert sources.file_hash(file) == hashlib.sha256(file.read_bytes()).hexdigest()
    before = sources.DrawnAttention(settings).identity
    file.write_bytes(b"x" * sources.CHUNK + b"y")
    after = sources.DrawnAttention(settings).identity
    assert before["model"] != after["model"]
    assert before["tokenizer"] == after["tokenizer"]


def test_a_sentence_is_counted_in_tokens():
    assert sources.DrawnAttention(Settings()).take("I love AI") == (3, "I love AI")
