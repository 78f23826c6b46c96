"""Every lesson: its right answer is right, and three wrong ones each show the mistake that they are.

The wrong answers are computed here, by NumPy on the arrays that a lesson starts from, or typed in.
"""

import json
import re
from math import cos, sin

import numpy as np
import pytest

from attnctl.inputs.config import yaml
from attnctl.verbs.learn import lessons
from attnctl.verbs.learn.grade import grade

LESSONS = {lesson.name: lesson for lesson in lessons()}
RUNS = {}


def run(name):
    if name not in RUNS:
        RUNS[name] = LESSONS[name].run()
    return RUNS[name]


def given(name):
    """The given arrays of a lesson: X, W_Q, W_K, W_V of one head, or Q, K, V."""
    return {step: np.array(array) for step, array in run(name).items()}


def softmax(s, axis=-1):
    e = np.exp(s)
    return e / e.sum(axis=axis, keepdims=True)


def india():
    x = np.array([[0.1, 1.3, 0.4, 1.5], [1.041, 0.640, 0.60999, 1.2999], [1.309, -0.116, 0.92, 1.0998]])
    w_q = np.array([[0.1, 0.2, 0, 0.3], [0.4, 0.1, 0.2, 0.2], [0.3, 0.3, 0.3, 0], [0.2, 0, 0.1, 0.4]])
    w_k = np.array([[0.3, 0.1, 0.1, 0], [0.1, 0.3, 0.2, 0.2], [0.2, 0.2, 0.4, 0.1], [0, 0.4, 0, 0.3]])
    return x, x @ w_q, x @ w_k, w_q


def machine():
    """The rows of "I love machine learning": Q = K = V = X."""
    return np.array([[1, 0, 1, 0], [0, 1, 1, 0], [1, 1, 0, 1], [0, 1, 0, 1.0]])


def scores_of(name):
    have = given(name)
    x, other = have["X"], have.get("memory", have["X"])
    return (x @ have["W_Q"][0]) @ (other @ have["W_K"][0]).T


def shown(value):
    return f"{value:.5g}"


def tokens():
    return "2", [("4", "position-for-id"), ("3", "counted-from-1"), ("5", None)]


def embedding():
    e = given("embedding")["embeddings"]
    wrong = [(e[1, 1], "column-from-1"), (e[0, 2], "row-above"), (e[2, 2], "row-below")]
    return shown(e[1, 2]), [(shown(value), mistake) for value, mistake in wrong]


def q_k_v():
    x, q, k, w_q = india()
    wrong = [
        (x[0] @ w_q[0], "weight-transposed"),
        (k[0, 0], "projection-mixed-up"),
        (x[0, 0], "projection-missing"),
        (q[0, 1], "next-column"),
    ]
    return "0.95", [(shown(value), mistake) for value, mistake in wrong]


def one_score():
    _, q, k, _ = india()
    wrong = [
        (q[1] @ k[0], "query-key-swapped"),
        (q[0] @ k[1] / 2, "scores-already-scaled"),
        (q[0] @ q[1], "query-with-query"),
    ]
    return "1.49427205", [(shown(value), mistake) for value, mistake in wrong]


def scale():
    w = np.array([[0.5, 0.1, 0, 0.2], [0, 0.6, 0.3, 0.1], [0.2, 0, 0.7, 0], [0.1, 0.2, 0, 0.4]])
    cat, down = np.array([0.9, 0.3, 0.1, 0.7]) @ w, np.array([0.4, 0.6, 0.2, 0.9]) @ w
    score = cat @ down
    wrong = [(score, "no-scale"), (score / 4, "scale-by-d_k")]
    sat = np.array([0.1, 0.8, 0.6, 0.2]) @ w
    return shown(score / 2), [
        *((shown(value), mistake) for value, mistake in wrong),
        (shown(cat @ sat / 2), "other-cell"),
    ]


def softmax_lesson():
    s = machine() @ machine().T / 2
    exp = np.exp(s)
    wrong = [
        ((exp / exp.sum(axis=0))[0], "softmax-over-queries"),
        (exp[0], "softmax-unnormalized"),
        ((2**s / (2**s).sum(axis=1, keepdims=True))[0], "exp-base-2"),
        (softmax(2 * s)[0], "no-scale"),
    ]
    # The figures of the note.
    right = "[0.38745562, 0.23500371, 0.23500371, 0.14253696]"
    return right, [(str(np.round(value, 4).tolist()), mistake) for value, mistake in wrong]


def mixing():
    v = machine()
    weights = softmax(v @ v.T / 2)
    wrong = [
        (weights.T[0] @ v[:, 0], "weights-transposed"),
        (v[:, 0].mean(), "mean-for-mixture"),
        (2, "sum-for-mixture"),
    ]
    return "0.62245933", [(shown(value), mistake) for value, mistake in wrong]


def two_heads():
    x = machine()
    heads = [softmax(x[:, at] @ x[:, at].T / np.sqrt(2)) @ x[:, at] for at in (slice(0, 2), slice(2, 4))]
    wrong = [
        (heads[0][2, 0], "heads-in-other-order"),
        ((heads[0][2, 0] + heads[1][2, 0]) / 2, "heads-averaged"),
        (heads[1][2, 1], "other-column"),
    ]
    return shown(heads[1][2, 0]), [(shown(value), mistake) for value, mistake in wrong]


def why_root():
    have = given("why-root")
    s = (have["X"] @ have["W_Q"][0]) @ (have["X"] @ have["W_K"][0]).T
    wrong = [(s.var() / 8, "divided-once"), (s.var(), "not-divided"), (s.var() / 64**2, "divided-by-d_k")]
    return shown((s / 8).var()), [(shown(value), mistake) for value, mistake in wrong]


def view_is_not_transpose():
    x = np.add.outer([10, 20, 30], [1, 2, 3, 4])
    wrong = [
        (x.reshape(2, 3, 2)[1], "heads-split-wrong"),
        (x[:, 1::2], "heads-split-wrong"),
        (x[:, :2], "other-head"),
        (x, "shape"),
    ]
    return "13 14; 23 24; 33 34", [(str(value.tolist()), mistake) for value, mistake in wrong]


def sees_nothing():
    return "0.25", [("0", "zero-row"), ("0.5", "words-only"), ("1", "one-key")]


def causal():
    s = scores_of("causal") / 2
    wrong = [
        (softmax(s)[1, 0], "mask-ignored"),
        (1.0, "causal-strict"),
        (softmax(s[1, :2])[1], "other-cell"),
    ]
    return shown(softmax(s[1, :2])[0]), [(shown(value), mistake) for value, mistake in wrong]


def padding():
    s = scores_of("padding") / 2
    seen = np.exp(s) * [1, 1, 1, 0, 0]
    wrong = [
        (softmax(s)[0, 2], "padding-ignored"),
        ((seen / seen.sum(axis=0, keepdims=True).clip(1e-9))[0, 2], "softmax-over-queries"),
        (np.exp(s[0, 2]), "softmax-unnormalized"),
    ]
    return shown(softmax(s[0, :3])[2]), [(shown(value), mistake) for value, mistake in wrong]


def positions():
    wrong = [(cos(3), "position-from-1"), (sin(2), "sine-for-cosine"), (cos(1), "position-before")]
    return shown(cos(2)), [(shown(value), mistake) for value, mistake in wrong]


def cross_attention():
    s = scores_of("cross-attention")
    words = ["le", "chat", "noir", "dort"]
    best, worst, other = words[s[2].argmax()], words[s[2].argmin()], words[s[0].argmax()]
    return f"A[cat,{best}]", [
        (f"attention_weights[0,cat,{worst}]", "smallest-for-largest"),
        (f"scaled_scores[0,cat,{best}]", "scores-for-weights"),
        (f"A[the,{other}]", "other-row"),
    ]


def cache():
    have = given("cache")
    keys = np.concatenate([have["past_key"], have["K"]], axis=1)
    s = (have["Q"] @ keys.swapaxes(1, 2))[0, 0]
    wrong = [(1.0, "causal-aligned-wrong"), (softmax(s)[0], "no-scale")]
    wrong += [(softmax(s[:5] / 2)[0], "causal-strict"), (softmax(s / 2)[5], "its-own-share")]
    return shown(softmax(s / 2)[0]), [(shown(value), mistake) for value, mistake in wrong]


def sizes():
    return "800", [("100", "one-head"), ("5120", "rows-of-d_k"), ("80", "one-row")]


def find_the_bug():
    return "attention_weights", [
        ("head_outputs", "later-step"),
        ("scaled_scores", "right-step"),
        ("Q", "right-step"),
    ]


def halves():
    """ "she sells shells": each word sees itself and the one before alike; two heads, one of K and V."""
    x = np.array([[1, 2, 3, 0], [1, 1, 2, 2], [0, 1, 0, 2]])
    q = np.stack([x[:, :2], x[:, 2:]])
    v = x @ [[2, -2], [0, 0], [4, 0], [0, -2]]
    a = np.array([[1, 0, 0], [0.5, 0.5, 0], [0, 0.5, 0.5]])
    d_a = np.stack([np.tile(v @ d, (3, 1)) for d in ([1, 1], [-1, 3])])
    delta = (a * d_a).sum(axis=-1, keepdims=True)
    return q, a, v, d_a, delta, a * (d_a - delta)


def gradient_of_a_row():
    _, a, _, d_a, delta, d_s = halves()
    wrong = [
        (a[2, 1] * d_a[1, 2, 1], "backward-no-delta"),
        ((d_a - delta)[1, 2, 1], "weight-left-out"),
        (d_s[1, 2, 1] / 2, "scores-not-scaled-yet"),
        (d_s[1, 2, 2], "other-key"),
        (d_a[1, 2, 1], "weights-of-the-loss"),
    ]
    return "-4", [(shown(value), mistake) for value, mistake in wrong]


def why_delta():
    _, a, v, d_a, delta, _ = halves()
    assert delta[1, 1, 0] == a[1] @ v @ [-1, 3]
    wrong = [
        (d_a[1, 1].sum(), "backward-delta-over-keys"),
        (d_a[1, 1].mean(), "plain-mean"),
        ((a[1] @ v).sum(), "no-gradient"),
    ]
    return "-24", [(shown(value), mistake) for value, mistake in wrong]


def groups_are_summed():
    q, *_, d_s = halves()
    d_k = (d_s / 2).swapaxes(1, 2) @ q
    wrong = [
        (d_k[0, 1, 0], "backward-groups-not-summed"),
        (d_k[1, 1, 0], "backward-groups-not-summed"),
        (d_k.mean(axis=0)[1, 0], "groups-averaged"),
        (d_k.sum(axis=0)[1, 1], "other-column"),
        (d_k.sum(axis=0)[0, 0], "other-key"),
    ]
    return "-3", [(shown(value), mistake) for value, mistake in wrong]


def induction():
    return "attention_weights[0,6,3]", [
        ("attention_weights[0,6,2]", "where-it-was"),
        ("A[6,5]", "the-token-before"),
        ("A[0,6,6]", "itself"),
    ]


CASES = {
    "tokens": tokens, "embedding": embedding, "q-k-v": q_k_v, "one-score": one_score, "scale": scale,
    "softmax": softmax_lesson, "mixing": mixing, "two-heads": two_heads, "causal": causal,
    "padding": padding, "positions": positions, "cross-attention": cross_attention, "cache": cache,
    "sizes": sizes, "find-the-bug": find_the_bug, "why-root": why_root,
    "view-is-not-transpose": view_is_not_transpose, "sees-nothing": sees_nothing,
    "gradient-of-a-row": gradient_of_a_row, "why-delta": why_delta, "groups-are-summed": groups_are_summed,
    "induction": induction,
}  # fmt: skip
WITH_FILES = {"your-own"}


def test_every_lesson_has_its_cases():
    assert set(CASES) | WITH_FILES == set(LESSONS)


@pytest.mark.parametrize("name", CASES)
def test_the_right_answer_is_right(name):
    right, wrong = CASES[name]()
    verdict = grade(LESSONS[name], right, run(name))
    assert verdict.right is True, verdict
    assert len(wrong) >= 3


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", CASES)
def test_a_wrong_answer_shows_its_mistake(name):
    _, wrong = CASES[name]()
    for answer, mistake in wrong:
        verdict = grade(LESSONS[name], answer, run(name))
        assert verdict.right is False, (answer, verdict)
        assert verdict.mistake == mistake, (answer, verdict)
        assert verdict.says


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["one-score", "softmax", "cross-attention", "find-the-bug"])
@pytest.mark.parametrize("garbage", ["", "nan", "inf", "?", "[[]]", "null", "{}", "0,5", "1e999"])
def test_garbage_is_never_right(name, garbage):
    assert grade(LESSONS[name], garbage, run(name)).right is not True


# Kinds of answer, as they stand in a file; numbers are slow, as each is held to all known mistakes.
NUMBERS = ["0.4", "-2", "1e99999", "1" * 500, "[1, 2]", "[[1, 0], [0, 1]]"]
OTHERS = [
    "null", "", "~", "true", "lots", '"0.4 "', '" "', ".nan", ".inf", "-.inf", "[]", "[[[[[[1]]]]]]",
    "[" * 20 + "]" * 20, "[1, [2]]", "[null, 1, 2, 3]", "[.nan, 1, 1, 1]", "{a: 1}", "[{a: 1}]", "{}",
    "0,5",
    "A[9,9,9]", '"A[0,0,0]"', "Q", '"a\\0b"', "../..", '"-"', "x" * 5000, "2020-01-01", "0x10", "٣", '"{"',
    '"[1, "', '"a: b"', "|\n    [0.1,\n     0.2]", '"\\e[31m"', "&a [1, 2]",
]  # fmt: skip


ONE_OF_A_KIND = {lesson.kind: name for name, lesson in LESSONS.items()}.values()


@pytest.mark.sample(9)
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(ONE_OF_A_KIND, id="one of a kind"),
        pytest.param(LESSONS, id="all", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "text",
    [*OTHERS, *(pytest.param(each, marks=pytest.mark.slow) for each in NUMBERS)],
    ids=lambda x: x[:20],
)
def test_every_kind_of_answer_is_graded(text, names):
    """As a person types it and as YAML reads it: never right, and never an error of ours."""
    for answer in (text, yaml.read(f"a: {text}", "a.yaml")[0]["a"]):
        for name in names:
            lesson = LESSONS[name]
            verdict = grade(lesson, answer, run(name))
            assert verdict.right is not True
            assert verdict.says


@pytest.mark.parametrize("answer", NUMBERS)
def test_a_number_for_a_matrix_is_not_right(answer):
    assert (
        grade(LESSONS["softmax"], yaml.read(f"a: {answer}", "a.yaml")[0]["a"], run("softmax")).right
        is not True
    )


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", CASES)
def test_zeros_are_never_right(name):
    zeros = ["[0, 0, 0, 0]", "[0.00, 0.00, 0.00, 0.00]"]
    for answer in zeros if LESSONS[name].kind == "matrix" else ["0", "0.00"]:
        assert grade(LESSONS[name], answer, run(name)).right is not True


def numbers_in(text):
    return [float(each) for each in re.findall(r"-?\d+\.?\d*", text)]


@pytest.mark.sample(24)
@pytest.mark.parametrize("name", [name for name in CASES if LESSONS[name].kind == "number"])
def test_what_is_said_of_a_wrong_number_does_not_give_the_right_one(name):
    """Neither as it stands nor added to, taken from, multiplied by or divided by what was typed."""
    right = float(LESSONS[name].right(run(name)))
    for typed in (right + 0.7829, right - 0.7829, right * 1.371, right / 1.371, 12 * right, -right):
        verdict = grade(LESSONS[name], shown(typed), run(name))
        assert verdict.right is False
        if verdict.mistake is None:
            assert "no known mistake" in verdict.says
            for n in numbers_in(verdict.says):
                given_away = [n, typed - n, typed + n, typed * n, typed / (n or 1)]
                assert not np.isclose(given_away, right, rtol=0.02).any(), verdict


@pytest.mark.parametrize("name", [name for name in CASES if name not in {"tokens", "find-the-bug"}])
def test_no_hint_holds_the_answer(name):
    lesson = LESSONS[name]
    right, _ = CASES[name]()
    said = " ".join([lesson.text, lesson.ask, *lesson.hints, *(wrong.says for wrong in lesson.wrong)])
    if lesson.kind == "cell":
        assert right.removeprefix("A") not in said
    else:
        numbers = [number for number in numbers_in(right) if abs(number) < 1e6]
        assert not any(np.isclose(n, numbers, rtol=2e-3).any() for n in numbers_in(said)), said


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("1.31", "is too small"),
        ("1.61", "is too large"),
        ("-1.3", "is too small"),
    ],
)
def test_a_wrong_number_is_told_its_side(typed, says):
    """One score is 1.494."""
    assert says in grade(LESSONS["one-score"], typed, run("one-score")).says


def own_program(x, w, scale=None, axis=-1, order=1):
    """Attention as somebody writes it, with two heads."""
    q, k, v = (np.stack([x @ w[name][:, 2 * h : 2 * h + 2] for h in (0, 1)]) for name in "QKV")
    s = q @ k.swapaxes(1, 2)
    scaled = s / (np.sqrt(2) if scale is None else scale)
    weights = softmax(scaled, axis)
    z = weights @ v
    return {
        "Q": q, "K": k, "V": v, "scores": s, "scaled_scores": scaled, "attention_weights": weights,
        "head_outputs": z, "concat": np.concatenate(list(z)[::order], axis=-1),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("mistake", "how"),
    [
        (None, {}),
        ("no-scale", {"scale": 1.0}),
        ("softmax-over-queries", {"axis": -2}),
        ("heads-in-other-order", {"order": -1}),
        ("other-numbers", {}),
    ],
)
def test_a_program_of_ones_own(mistake, how, tmp_path):
    have = given("your-own")
    x = have["X"] + (mistake == "other-numbers")
    w = {name: np.concatenate(list(have[f"W_{name}"]), axis=-1) for name in "QKV"}
    made = own_program(x, w, **how) | {"X": x} | {f"W_{name}": w[name] for name in "QKV"}
    np.savez(tmp_path / "mine.npz", **made)
    verdict = grade(LESSONS["your-own"], "mine.npz", run("your-own"), folder=str(tmp_path))
    assert verdict.right is (mistake is None), verdict
    assert verdict.mistake == mistake


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_a_dump_of_garbage_is_never_right(value, tmp_path):
    have = given("your-own")
    names = ["X", "W_Q", "W_K", "W_V", "concat"]
    made = {name: np.full_like(have[name], value) if name == "concat" else have[name] for name in names}
    np.savez(tmp_path / "mine.npz", **made)
    assert grade(LESSONS["your-own"], "mine.npz", folder=str(tmp_path)).right is not True
    (tmp_path / "mine.json").write_text(json.dumps({"concat": have["concat"].tolist()}))
    assert grade(LESSONS["your-own"], "mine.json", folder=str(tmp_path)).right is not True
    assert grade(LESSONS["your-own"], "none.json", folder=str(tmp_path)).right is None
