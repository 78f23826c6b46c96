"""Parts of a corpus: whatever the shards and their order, the whole is the same to the last byte."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from functools import partial
from math import fsum

import numpy as np
import pytest
from corpora import entropies, written
from hypothesis import given
from hypothesis import strategies as st

import attnctl
from attnctl.base.errors import AttnError
from attnctl.base.values import BadValueError
from attnctl.inputs.config.settings import Random, Settings
from attnctl.verbs.corpus import Shard, read_shard
from attnctl.verbs.corpus.part import merge_parts, part_of_bytes
from attnctl.verbs.corpus.run import measure_into, open_work
from attnctl.verbs.stats import Largest
from attnctl.verbs.stats.tally import EXAMPLES, GRID, GridSum, HeadTally, sum_rows


def shards(job, count, seed=0):
    """Every shard of a job through its bytes, shuffled."""
    parts = []
    for number in range(1, count + 1):
        found = measure_into(job(shard=Shard(number, count)), [])
        parts.append((f"part-{number}", part_of_bytes(found.to_bytes(), f"part-{number}")))
    random.Random(seed).shuffle(parts)
    return parts


@pytest.mark.sample(8)
@pytest.mark.parametrize(("count", "pairs"), [(1, True), (2, True), (7, True), (7, False), (60, False)])
def test_any_number_of_shards_of_a_model_in_any_order(tmp_path, model, count, pairs):
    job = partial(open_work, str(written(tmp_path / "c.txt")), model, pairs=pairs)
    assert merge_parts(shards(job, count, seed=count)).to_bytes() == measure_into(job(), []).to_bytes()


@pytest.mark.parametrize("count", [1, 2, 7])
def test_any_number_of_shards_of_drawn_attention(tmp_path, count):
    job = partial(open_work, str(written(tmp_path / "c.txt")), settings=Settings(heads=2), pairs=True)
    assert merge_parts(shards(job, count, seed=count)).to_bytes() == measure_into(job(), []).to_bytes()


@pytest.mark.sample(2)
@pytest.mark.parametrize("trained", [True, False])
def test_how_sentences_are_put_together_changes_nothing(tmp_path, model, monkeypatch, trained):
    job = partial(
        open_work,
        str(written(tmp_path / "c.txt")),
        model if trained else None,
        Settings(heads=2),
        pairs=True,
    )
    source = "TrainedModel" if trained else "DrawnAttention"
    found = measure_into(job(), []).to_bytes()
    for most in (1, 3):
        monkeypatch.setattr(f"attnctl.verbs.corpus.sources.{source}.at_once", lambda self, count, m=most: m)
        assert measure_into(job(), []).to_bytes() == found
    monkeypatch.setattr("attnctl.verbs.corpus.run.MOST_WAITING", 12)
    assert measure_into(job(), []).to_bytes() == found


@pytest.mark.parametrize(
    "settings",
    [
        Settings(embeddings="identity"),
        Settings(embeddings=Random(stream="numpy_legacy")),
    ],
)
def test_rows_that_depend_on_the_vocabulary_are_a_sentences_own(tmp_path, settings):
    """Each sentence grows its vocabulary from its own first token, as in a run of it alone."""
    path = written(tmp_path / "c.txt", lines=12)
    if settings.embeddings == "identity":
        path.write_text("a b c\nd a b\nc c d\n")
    sentences = [line for line in path.read_text().splitlines() if line]
    part = measure_into(open_work(str(path), settings=settings), [])
    alone = [
        attnctl.stats(attnctl.run(each, settings)).heads[0].tallies["entropy"].sum for each in sentences
    ]
    assert part.layers[0].heads[0].sums["entropy"].sum == pytest.approx(fsum(alone), rel=1e-13)


def test_it_is_what_stats_of_each_sentence_add_up_to(tmp_path):
    path = written(tmp_path / "c.txt")
    sentences = [line for line in path.read_text().splitlines() if line]
    part = measure_into(open_work(str(path), settings=Settings(heads=2), pairs=True), [])
    alone = [attnctl.stats(attnctl.run(each, heads=2)) for each in sentences]
    assert (part.sentences, part.tokens) == (len(sentences), sum(len(each.split()) for each in sentences))
    for number, head in enumerate(part.layers[0].heads):
        for name, found in head.sums.items():
            told = [each.heads[number].tallies[name] for each in alone]
            assert found.rows == sum(each.rows for each in told)
            assert found.sum == pytest.approx(fsum(each.sum for each in told), rel=1e-14)
    apart = part.layers[0].pairs[0, 1]
    assert apart.sum == pytest.approx(fsum(each.pairs[0, 1].sum for each in alone), rel=1e-13)


def test_entropies_are_those_of_a_loop_over_rows(tmp_path):
    path = written(tmp_path / "c.txt", lines=12)
    sentences = [line for line in path.read_text().splitlines() if line]
    (layer,) = measure_into(open_work(str(path), settings=Settings(heads=2)), []).layers
    for number, head in enumerate(layer.heads):
        bits = [each for sentence in sentences for each in entropies(sentence, heads=2)[number]]
        assert head.sums["entropy"].sum == pytest.approx(fsum(bits), rel=1e-13)
        assert head.entropies == np.histogram(bits, np.arange(65) / 4)[0].tolist()


def test_a_models_sentence_has_the_numbers_of_a_run(tmp_path, model):
    (tmp_path / "c.txt").write_text("a b c a d\n")
    part = measure_into(open_work(str(tmp_path / "c.txt"), model), [])
    traces = attnctl.run_model(model, "a b c a d")
    for layer, trace in zip(part.layers, traces, strict=True):
        told = attnctl.stats(trace)
        for head, alone in zip(layer.heads, told.heads, strict=True):
            assert {name: each.mean for name, each in head.sums.items()} == pytest.approx(
                alone.means, rel=1e-5
            )
            best = head.examples[0]
            assert best.at == alone.largest.at
            assert best.value == pytest.approx(alone.largest.value, rel=1e-5)


def test_the_size_does_not_grow_with_the_corpus(tmp_path):
    few, many = (
        measure_into(open_work(str(written(tmp_path / f"{lines}.txt", lines))), []).to_bytes()
        for lines in (10, 100)
    )
    assert len(many) < 1.1 * len(few)


# --- sums ---


@given(st.lists(st.tuples(st.floats(0, 1e6), st.booleans()), min_size=1, max_size=12), st.randoms())
def test_sums_are_the_same_in_any_order_and_division(rows, random):
    def sums_of(some):
        values, valid = np.array(some, float).T.reshape(2, 1, 1, -1)
        (units,), (count,) = sum_rows(values, valid.astype(bool))
        return units, count

    whole, other, mixed = GridSum(), GridSum(), random.sample(rows, len(rows))
    whole.add(*sums_of(rows))
    cut = random.randint(0, len(rows))
    for part in (mixed[:cut], mixed[cut:]):
        other.add(*(sums_of(part) if part else (0, 0)))
    assert other == whole
    exact = sum((Fraction(value) for value, valid in rows if valid), Fraction())
    assert abs(Fraction(whole.units, 1 << GRID) - exact) <= whole.rows * Fraction(1, 2 << GRID)
    assert whole.rows == sum(valid for _, valid in rows)


@given(
    st.lists(st.tuples(st.sampled_from([0.25, 0.5, 1.0]), st.integers(1, 30)), unique=True), st.randoms()
)
def test_the_largest_are_the_same_in_any_order(found, random):
    examples = [Largest(value, (0, 0), ("a", "b"), line) for value, line in found]
    one, other = HeadTally(), HeadTally()
    for each in examples:
        one.note(each)
    for each in random.sample(examples, len(examples)):
        other.note(each)
    assert one.examples == other.examples
    assert one.examples == sorted(examples, key=lambda each: (-each.value, each.line))[:EXAMPLES]


# --- shards ---


@given(st.integers(0, 200), st.integers(1, 40))
def test_shards_divide_the_lines(lines, count):
    spans = [Shard(number, count).span(lines) for number in range(1, count + 1)]
    assert [line for span in spans for line in span] == list(range(lines))
    assert max(map(len, spans)) - min(map(len, spans)) <= 1


@pytest.mark.parametrize(
    "text", ["0/0", "8/7", "0/7", "1", "1/2/3", "a/b", "-1/2", "1/-2", "", "1 /2", "²/3"]
)
def test_what_is_no_shard_is_refused(text):
    with pytest.raises(BadValueError):
        read_shard(text)


# --- parts that do not go together ---


def test_what_is_missing_and_what_is_twice_there(tmp_path):
    path = written(tmp_path / "c.txt", lines=30)
    parts = dict(shards(partial(open_work, str(path)), 5))
    with pytest.raises(AttnError) as missing:
        merge_parts([(name, parts[name]) for name in ("part-2", "part-4")])
    assert list(missing.value.problems) == [
        "lines 1 to 6: in none of the parts; give the part that has them",
        "lines 13 to 18: in none of the parts; give the part that has them",
        "lines 25 to 30: in none of the parts; give the part that has them",
    ]
    with pytest.raises(AttnError, match="lines 1 to 6: in part-1 and in again; give each part once"):
        merge_parts([*parts.items(), ("again", parts["part-1"])])


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"seed": 1}, "another corpus"),
        ({"settings": Settings(seed=1)}, "another model"),
        ({"settings": Settings(dtype="float32")}, "another model"),
        ({"pairs": True}, "another choice of --pairs"),
    ],
)
def test_parts_of_other_things(tmp_path, other, said):
    path = written(tmp_path / "c.txt")
    seed = other.pop("seed", 0)
    elsewhere = written(tmp_path / "other.txt", seed=seed)
    one = measure_into(open_work(str(path), shard=Shard(1, 2)), [])
    two = measure_into(open_work(str(elsewhere), shard=Shard(2, 2), **other), [])
    with pytest.raises(AttnError, match=f"two: {said} than that of one"):
        merge_parts([("one", one), ("two", two)])


def without_hash(data):
    return {name: value for name, value in data.items() if name != "sha256"}


def deep(data, path, value):
    """The data with one value of it changed."""
    *way, last = path
    at = data
    for each in way:
        at = at[each]
    at[last] = value
    return data


HEAD = ("layers", 0, "heads", 0)
CHANGES = {
    "a sum": ((*HEAD, "sums", "entropy"), "12345"),
    "a sum below 0": ((*HEAD, "sums", "entropy"), "-5"),
    "a sum as a number": ((*HEAD, "sums", "entropy"), 5),
    "a sum of a million digits": ((*HEAD, "sums", "entropy"), "9" * 10**6),
    "rows": ((*HEAD, "rows", "entropy"), 1),
    "rows below 0": ((*HEAD, "rows", "self"), -1),
    "rows that are a truth value": ((*HEAD, "rows", "self"), True),
    "a mean": ((*HEAD, "entropy"), 0.5),
    "a mean of NaN": ((*HEAD, "entropy"), "NaN"),
    "a histogram": ((*HEAD, "entropies", 3), 10**6),
    "a short histogram": ((*HEAD, "entropies"), [1]),
    "an example": ((*HEAD, "largest", 0, "value"), 2),
    "no list of heads": (("layers", 0, "heads"), {}),
    "a layer's number": (("layers", 0, "layer"), 7),
    "the lines": (("lines", "count"), 10**9),
    "a line before the first": (("lines", "first"), 0),
    "the hash of the corpus": (("corpus", "sha256"), "0"),
    "no corpus": (("corpus",), None),
    "the grid": (("sums_in",), "2^-10"),
    "one more thing": (("more",), 1),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("rehashed", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_a_part_that_was_edited_is_refused(tmp_path, name, rehashed):
    from attnctl.verbs.corpus.part import content_hash

    data = json.loads(measure_into(open_work(str(written(tmp_path / "c.txt", 8))), []).to_bytes())
    path, value = CHANGES[name]
    changed = deep(data, path, value)
    if rehashed and name not in {"a sum", "a histogram", "the hash of the corpus"}:
        changed["sha256"] = content_hash(without_hash(changed))
    text = json.dumps(changed, ensure_ascii=False).encode() + b"\n"
    with pytest.raises(AttnError, match=r"p\.json: changed since it was written"):
        part_of_bytes(text, "p.json")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "expected one object"),
        (b"{", "not JSON"),
        (b"[]", "expected one object"),
        (b"{}", "not a part of a corpus"),
        (b'{"schema": "attnctl/corpus/2"}', "not a part of a corpus"),
        (b'{"schema": "attnctl/corpus/1"}', "changed since it was written"),
        (b'{"schema": "attnctl/corpus/1", "layers": NaN}', "NaN is not JSON"),
        (b"\xff", "not UTF-8"),
        (b'{"schema": ' + b"[" * 10**5, "nested too deeply"),
    ],
)
def test_what_is_no_part_is_refused(text, said):
    with pytest.raises(AttnError, match=said):
        part_of_bytes(text, "p.json")
