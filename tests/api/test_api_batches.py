"""Several sentences: what each trace carries of the vocabulary, and padding that can be seen."""

import json

import numpy as np
import pytest

import attnctl
from attnctl.inputs.config.form import validate
from attnctl.inputs.plan.sentence import tokenize

SENTENCES = ["I love AI", "the cat sat on the mat"]


def again(trace):
    """The trace that its own config gives."""
    return attnctl.run(settings=validate(json.loads(json.dumps(trace.config))))


def same_numbers(a, b):
    return list(a) == list(b) and all(a[name].tobytes() == b[name].tobytes() for name in a)


def test_rows_that_see_nothing_are_those_of_each_sentence():
    options = {"vocab": list("abcd"), "causal": True, "window": (0, 0), "causal_offset": -2}
    sentences = ["a b c d", "a b", "a b c"]
    headers = [trace.header["empty_rows"] for trace in attnctl.run_many(sentences, **options)]
    assert headers == [attnctl.run(each, **options).header["empty_rows"] for each in sentences]


# --- the vocabulary ---


def test_a_trace_carries_its_own_tokens_and_the_ids_of_the_whole_vocabulary():
    first, second = attnctl.run_many(SENTENCES)
    assert first.config["vocab"] == ["I", "love", "AI"]
    assert second.config["vocab"] == ["the", "cat", "sat", "on", "mat"]
    assert second.ids == [3, 4, 5, 6, 3, 7]


BY_TOKEN = {"embeddings": {word: [i, 1.0] for i, word in enumerate(["a", "b", "c", "d", "[UNK]"])}}
WORDS = ["a", "b", "c", "d"]
EMBEDDINGS = {
    "drawn": {},
    "by token": BY_TOKEN,
    "rows": {"vocab": WORDS, "embeddings": [[0.0, i] for i in range(4)]},
    "identity": {"vocab": WORDS, "embeddings": "identity"},
    "one stream": {"embeddings": {"random": {"seed": 1, "stream": "numpy_legacy"}}},
    "[UNK]": {"vocab": [*WORDS, "[UNK]"]},
    "cross-attention": {"context": "d a"},
}
ONE_BY_ONE = {
    "edited": {"edits": ["attention_weights[0]=0.5"]},
    "with gradients": {"backward": True},
    "in chunks": {"chunks": 2},
    "with a rule of padding": {"rules": ["padding"]},
}


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "options", [*EMBEDDINGS.values(), *ONE_BY_ONE.values()], ids=[*EMBEDDINGS, *ONE_BY_ONE]
)
@pytest.mark.parametrize("padded", [False, True])
def test_the_config_of_each_trace_gives_its_numbers_again(options, padded):
    for trace in attnctl.run_many(["b c", "a d b", "c"], padded=padded, **options):
        alone = again(trace)
        for name in trace:
            np.testing.assert_allclose(alone[name], trace[name], rtol=0, atol=1e-14)
        assert same_numbers(again(alone), alone)
        assert alone.config == trace.config


def test_rows_by_token_are_those_of_the_tokens_there():
    (trace, _) = attnctl.run_many(["b c", "z z"], **BY_TOKEN)
    assert trace.config["embeddings"] == {"b": [1, 1.0], "c": [2, 1.0]}


def test_several_unknown_words_have_the_row_of_unk():
    trace = attnctl.run("x y a", **BY_TOKEN)
    assert trace["embeddings"].tolist() == [[4, 1], [4, 1], [0, 1]]
    assert trace.config["vocab"] == ["a", "[UNK]"]


def test_lines_do_not_grow_with_the_vocabulary():
    """A hundred times the sentences, each of words of its own: each header is as long."""
    few = attnctl.run_many([f"a{i} b{i}" for i in range(10)], keep=["scores"])
    many = attnctl.run_many([f"a{i} b{i}" for i in range(1000)], keep=["scores"])
    assert len(json.dumps(many[9].header)) < 1.1 * len(json.dumps(few[9].header))


# --- padding ---


@pytest.mark.parametrize(
    "options", [{}, {"heads": 2, "causal": True}, {"positions": "rope"}, {"positions": "sinusoidal"}]
)
def test_a_padded_batch_has_the_rows_of_each_sentence_and_hides_its_padding(options):
    plain = attnctl.run_many(SENTENCES, **options)
    padded = attnctl.run_many(SENTENCES, padded=True, **options)
    assert [len(trace.tokens) for trace in padded] == [6, 6]
    assert padded[0].tokens == ["I", "love", "AI", "[PAD]", "[PAD]", "[PAD]"]
    for alone, trace in zip(plain, padded, strict=True):
        n = len(alone.tokens)
        weights = trace["attention_weights"]
        np.testing.assert_allclose(weights[:, :n, :n], alone["attention_weights"], rtol=0, atol=1e-14)
        np.testing.assert_allclose(trace["output"][:n], alone["output"], rtol=0, atol=1e-14)
        assert not weights[..., n:].any()
    assert padded[0].config["rules"][-1] == "padding"
    assert np.isneginf(padded[0]["masked_scores"][..., 3:]).all()
    assert attnctl.check(padded[0]).agrees


@pytest.mark.parametrize(
    ("sentence", "hidden"),
    [
        ("I love [PAD]", [2]),
        ("[PAD] I [PAD] love", [0, 2]),
        ("[PAD] [PAD]", [0, 1]),
        ("I [PAD] AI [PAD]", [1, 3]),
    ],
)
@pytest.mark.parametrize("options", [{}, {"rules": ["padding"]}, {"rules": ["causal", "padding"]}])
def test_a_literal_pad_is_never_attended_to(sentence, hidden, options):
    trace = attnctl.run(sentence, **options)
    assert not trace["attention_weights"][..., hidden].any()
    assert not trace["embeddings"][hidden].any()
    assert same_numbers(again(trace), trace)


def test_padding_of_the_other_sentence_is_hidden():
    trace = attnctl.run("[PAD] b", context="a [PAD] c")
    assert (trace["attention_weights"] == 0).tolist() == [[[False, True, False]] * 2]


def test_padding_has_the_row_it_is_given():
    trace = attnctl.run("a [PAD]", embeddings={"a": [1, 0], "[PAD]": [0.5, 2]})
    assert trace["X"].tolist() == [[1, 0], [0.5, 2]]
    assert trace["attention_weights"].tolist() == [[[1, 0], [1, 0]]]


def test_padding_is_no_word_of_the_vocabulary():
    trace = attnctl.run("a [PAD] b", embeddings="identity")
    assert trace["X"].tolist() == [[1, 0], [0, 0], [0, 1]]
    assert (trace.ids, trace.config["vocab"]) == ([0, 2, 1], ["a", "b"])
    assert attnctl.run("a [PAD]", vocab=["a", "[UNK]"]).ids == [0, 2]


def test_padding_hides_nothing_where_there_is_none():
    assert "masked_scores" not in attnctl.run("a b")
    asked = attnctl.run("a b", rules=["padding"])
    assert asked["masked_scores"].tolist() == asked["scaled_scores"].tolist()


def test_each_trace_of_a_padded_batch_has_the_steps_of_all():
    traces = attnctl.run_many(SENTENCES, padded=True)
    assert list(traces[0]) == list(traces[1])
    assert {trace.config["rules"][-1] for trace in traces} == {"padding"}
    assert attnctl.run_many(SENTENCES, padded=True, keep=["masked_scores"])[1]["masked_scores"].shape == (
        1,
        6,
        6,
    )


@pytest.mark.parametrize("split", ["whitespace", "words", "characters"])
def test_pad_stays_whole(split):
    assert (
        tokenize("[PAD][PAD]" if split == "characters" else "[PAD] [PAD]", split, lowercase=True)
        == ["[PAD]"] * 2
    )
    traces = attnctl.run_many(["Ab c", "D"], padded=True, tokenizer={"split": split, "lowercase": True})
    assert traces[1].tokens == ["d", *["[PAD]"] * (len(traces[0].tokens) - 1)]


def test_padding_of_arrays_is_said_by_lengths_or_tokens():
    arrays = {name: np.ones((3, 2)) for name in "QKV"}
    with pytest.raises(attnctl.AttnError, match="nothing says which keys are; give key_lengths"):
        attnctl.attend(arrays, rules=["padding"])
    trace = attnctl.attend({**arrays, "key_lengths": np.array(2)}, rules=["padding"])
    assert trace["attention_weights"][0, 0].tolist() == [0.5, 0.5, 0]
    ours = attnctl.attend(attnctl.run("a [PAD]"), rules=["padding"])
    assert ours["attention_weights"].tolist() == [[[1, 0], [1, 0]]]


# --- no output projection ---


def test_given_projections_without_w_o_give_the_concat():
    eye = [[1.0, 0.0], [0.0, 1.0]]
    weights = {"W_Q": eye, "W_K": eye, "W_V": eye}
    trace = attnctl.run("a b", weights=weights, d_model=2)
    assert "W_O" not in trace
    assert trace["output"].tolist() == trace["concat"].tolist()
    assert trace.config["weights"]["W_O"] == "none"
    assert attnctl.check(trace).agrees
    x = {"X": np.eye(2), **{name: np.array(rows) for name, rows in weights.items()}}
    ours = attnctl.attend(x, keep=["output"])
    assert ours["output"].shape == (2, 2)
    batch = attnctl.attend({**x, "X": np.stack([np.eye(2)] * 3)})
    assert batch["output"].tolist() == batch["concat"].tolist()
    assert attnctl.check(batch).agrees


@pytest.mark.parametrize(
    "weights",
    [
        {},
        {"random": {"seed": 3}},
        {"W_Q": {"random": {"seed": 3}}},
        {"W_Q": "identity", "W_O": {"random": {}}},
        {"b_Q": [0.0, 1.0, 2.0, 3.0]},
    ],
)
def test_w_o_is_drawn_where_no_projection_is_given_or_it_is_asked_for(weights):
    assert "W_O" in attnctl.run("a b", weights=weights)


def test_padding_that_a_sentence_writes_has_the_row_that_is_given_for_it():
    """Also where the vocabulary leaves it out."""
    rows = {"a": [1, 0], "b": [0, 1], "[PAD]": [5, 5]}
    trace = attnctl.run("a [PAD] b", vocab=["a", "b"], d_model=2, embeddings=rows)
    assert trace["X"].tolist() == [rows["a"], rows["[PAD]"], rows["b"]]
