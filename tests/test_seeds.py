"""The same seed draws the same tensors, bit for bit, on every NumPy: digests that must never change."""

import hashlib

import numpy as np
import pytest

import attnctl
from attnctl.inputs.config.settings import Random, Weights
from attnctl.inputs.plan.tensors import FEW, FewNumbers, key, stream

LEGACY = Random(1, "uniform", "per_head", "numpy_legacy")


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array, dtype="<f8").tobytes()).hexdigest()[:16]


PINNED = [
    ({}, "embeddings", "5e90aa0d884d5922"),
    ({}, "W_Q", "2c8e2534b8c13719"),
    ({"seed": 1}, "W_Q", "433756ecac398b07"),
    ({"heads": 2}, "W_K", "d6e03b6fa5d30b18"),
    ({"heads": 2}, "W_V", "cb86b7c4fc9e7a80"),
    ({"heads": 2}, "W_O", "0c325a485e60a771"),
    ({"weights": Weights(random=Random(distribution="uniform"))}, "W_Q", "eeea73994d623d56"),
    ({"weights": Weights(random=Random(layout="per_head")), "heads": 2}, "W_Q", "2c8e2534b8c13719"),
    ({"weights": Weights(random=LEGACY), "heads": 2}, "W_O", "a4216aa5c59471bf"),
    ({"embeddings": Random(5, "uniform", stream="numpy_legacy")}, "embeddings", "f79bcafc86f88fd4"),
]


@pytest.mark.parametrize(("options", "name", "expected"), PINNED)
def test_a_drawn_tensor_never_changes(options, name, expected):
    assert digest(attnctl.run("I love AI", **options)[name]) == expected


def test_the_first_numbers_of_a_stream_never_change():
    assert stream(0, "tensor", "W_Q", count=3).standard_normal((3,)).tolist() == [
        -0.6411123874514496,
        -1.6703491594465305,
        -0.1594334817593698,
    ]


@pytest.mark.parametrize("words", [key(0, "tensor", "W_Q"), key(7, "token", "love"), [1, 2, 0], [0]])
def test_a_few_numbers_are_those_of_numpy(words):
    words = np.array(words, np.uint32)
    ours, numpys = FewNumbers(), np.random.RandomState(words)
    ours.seed(words)
    for shape in [(3,), (2, 3), (0, 4), (101,)]:
        assert ours.standard_normal(shape).tolist() == numpys.standard_normal(shape).tolist()
    ours.seed(words)
    numpys.seed(words)
    assert ours.random_sample((5, 7)).tolist() == numpys.random_sample((5, 7)).tolist()


def test_many_numbers_begin_like_a_few():
    few, many = (stream(0, "tensor", "W_Q", count=n).standard_normal((FEW,)) for n in (FEW, FEW + 1))
    assert few.tolist() == many.tolist()


def test_a_token_has_one_embedding_in_every_sentence():
    first, second = attnctl.run("I love AI"), attnctl.run("AI loves cats")
    assert first["embeddings"][2].tolist() == second["embeddings"][0].tolist()


def test_heads_share_one_fused_matrix():
    one, two = attnctl.run("I love AI"), attnctl.run("I love AI", heads=2)
    for name in ("W_Q", "W_K", "W_V"):
        assert one[name][0].tolist() == np.concatenate(list(two[name]), axis=1).tolist()


@pytest.mark.parametrize("change", [{"causal": True}, {"positions": "sinusoidal"}, {"softcap": 30.0}])
def test_a_rule_moves_no_drawn_tensor(change):
    plain, changed = attnctl.run("I love AI", heads=2), attnctl.run("I love AI", heads=2, **change)
    for name in ("embeddings", "W_Q", "W_K", "W_V", "W_O"):
        assert plain[name].tolist() == changed[name].tolist()


def test_dropping_w_o_moves_no_other_tensor():
    plain = attnctl.run("I love AI")
    without = attnctl.run("I love AI", weights=Weights({"W_O": "none"}))
    assert "W_O" not in without
    assert plain["concat"].tolist() == without["concat"].tolist() == without["output"].tolist()


def test_the_textbook_stream_is_numpys_own():
    rng = np.random.RandomState(1)
    heads = [{name: rng.rand(4, 2) for name in ("W_Q", "W_K", "W_V")} for _ in range(2)]
    last = rng.rand(4, 4)
    trace = attnctl.run("I love AI", heads=2, weights=Weights(random=LEGACY))
    for name in ("W_Q", "W_K", "W_V"):
        assert trace[name].tolist() == [head[name].tolist() for head in heads]
    assert trace["W_O"].tolist() == last.tolist()


def test_one_matrix_for_all_has_a_stream_of_its_own():
    trace = attnctl.run("I love AI", weights=Weights({"W": Random(1)}))
    drawn = stream(1, "tensor", "W", count=16).standard_normal((4, 4)) / 2
    assert all((trace[name] == drawn).all() for name in ("W_Q", "W_K", "W_V"))
