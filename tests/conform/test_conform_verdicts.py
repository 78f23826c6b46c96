"""What conform says of whole kernels, called in this process: features, statuses, conventions, names."""

from __future__ import annotations

import json

import kernels_here as kernels
import numpy as np
import pytest

import attnctl
from attnctl.verbs.conform.features import NAMES
from attnctl.verbs.conform.relations import PREFILL, RELATIONS


def conform(function, *only, dtypes=("float64",), **more):
    return attnctl.conform(function, quick=True, features=only, dtypes=dtypes, **more)


def statuses(found):
    return {(each.feature, each.dtype): each.status for each in found.features}


def of(found, feature, dtype="float64"):
    return next(each for each in found.features if (each.feature, each.dtype) == (feature, dtype))


def test_a_right_kernel_conforms():
    types = ("float64", "bfloat16")
    found = conform(kernels.good, dtypes=types)
    assert found.agrees is True
    told = statuses(found)
    for dtype in types:
        assert {name for (name, each), status in told.items() if each == dtype and status == "passed"} == {
            "attention", "head sizes", "lengths", "d_v ≠ d_k", "grouped heads", "large scores",
            "large values", *{*RELATIONS} - {PREFILL},  # its causal ends at the first key
            "memory layouts", "causal", "scale", "many keys", "block boundaries", "pairs", "random",
            "repeatable", "inputs kept",
        }  # fmt: skip
    assert all(each.ratio is None or each.ratio <= 1 for each in found.features)
    assert found.conventions == {"causal corner": "top-left"}


def test_a_kernel_with_every_option_conforms():
    found = conform(
        kernels.everything, "attention", "cache", "sinks", "sliding_window", dtypes=("float32",)
    )
    assert found.agrees is True, str(found)
    skipped = {each.feature for each in found.features if each.status == "skipped"}
    assert skipped == {"sliding_window"}
    assert found.conventions == {
        "causal corner": "top-left",
        "causal with key lengths": "first key",
        "float mask": "added",
        "rows that see nothing": "zeros",
        "NaN in padding": "spreads",
    }
    assert found.notes == (
        (
            "Output 1 looks like the attention_weights and is not judged; "
            "--returns output,attention_weights declares it."
        ),
        "Not tried: corner: left at the default in every call (--map corner=OURS says what it is).",
    )


def test_the_bottom_right_corner_is_a_convention():
    found = conform(kernels.bottom_right, "causal", "window", "lengths", "pairs")
    assert found.agrees is True, str(found)
    assert found.conventions["causal corner"] == "bottom-right"


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("kernel", "feature", "status", "mistake"),
    [
        (kernels.bad, "attention", "failed", "no-scale"),
        (kernels.zeros, "attention", "failed", "zeros"),
        (kernels.mean, "attention", "failed", "mean-of-values"),
        (kernels.single, "attention", "failed", "low-precision"),
        pytest.param(kernels.turned, "attention", "failed", "wrong-shape", marks=pytest.mark.slow),
        (kernels.in_place, "inputs kept", "failed", "inputs-changed"),
        (kernels.forgetful, "repeatable", "failed", "not-repeatable"),
        (kernels.ignores, "causal", "ignored", "option-ignored"),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_what_is_wrong_is_found_and_named(kernel, feature, status, mistake):
    found = conform(kernel, feature)
    result = of(found, feature)
    assert found.agrees is False
    assert result.status == status
    assert result.failure.mistake == mistake
    assert result.failure.explanation


@pytest.mark.parametrize("into", [kernels.into, kernels.into_if_given])
def test_a_buffer_for_the_output_is_handed_in(into):
    found = conform(into, "attention", "grouped heads", "out", "pairs", "inputs kept", dtypes=("float16",))
    assert found.agrees is True, str(found)
    assert of(found, "out", "float16").status == "passed"


@pytest.mark.parametrize(
    ("kernel", "mistake"),
    [
        (kernels.into_some, "memory-not-written"),
        (kernels.into_nothing, "memory-not-written"),
        (kernels.into_what_is_there, "memory-not-written"),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_what_is_not_written_to_a_buffer_is_found(kernel, mistake):
    assert of(conform(kernel, "out"), "out").failure.mistake == mistake


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("kernel", "feature", "words"),
    [
        (kernels.good, "softcap", "nothing in its signature asks for it"),
        (kernels.same_lengths, "lengths", "ValueError: q and k must have one shape"),
        (kernels.raises, "causal", "refused: KeyError: 'mask'"),
        (kernels.no_softcap, "softcap", "NotImplementedError: softcap: not yet"),
        (kernels.not_float64, "attention", "TypeError: expected float16 or float32"),
        (kernels.answers_single, "attention", "it answers in float32"),
        (kernels.boolean_mask, "float_mask", "read as truth values"),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_what_it_does_not_have_is_skipped_with_the_reason(kernel, feature, words):
    found = conform(kernel, feature)
    assert of(found, feature).status == "skipped"
    assert words in of(found, feature).reason


def test_where_nothing_was_run_there_is_no_verdict():
    assert conform(kernels.not_float64).agrees is None
    assert conform(kernels.good, "softcap").agrees is None


def test_a_type_that_is_refused_does_not_spoil_the_others():
    found = conform(kernels.not_float64, "attention", dtypes=("float64", "float32"))
    assert statuses(found) == {("attention", "float64"): "skipped", ("attention", "float32"): "passed"}
    assert found.agrees is True


def test_cases_that_are_refused_are_told():
    found = conform(kernels.good, "grouped heads")
    assert of(found, "grouped heads").status == "passed"
    assert of(found, "grouped heads").reason.startswith("4 of its cases are refused: ValueError: ")
    assert "In part: grouped heads: 4 of its cases are refused" in str(found)
    assert "It conforms: 2 of 6 cases, longest 12 keys." in str(found)
    assert found.to_dict()["of"] == 6


def test_cases_in_a_type_that_is_refused_are_counted():
    found = conform(kernels.not_float64, "attention", "softcap", dtypes=("float64", "float32"))
    assert "It conforms: 12 of 24 cases, longest 129 keys." in str(found)


@pytest.mark.slow
def test_cases_that_a_hang_leaves_are_counted():
    found = conform(f"{kernels.__file__}:hangs", "head sizes", timeout=1)
    (result,) = found.features
    assert (result.cases, result.of) == (4, 7)
    assert "In part: head sizes: 3 of its cases are not run: the target did not answer in time." in str(
        found
    )


@pytest.mark.slow
def test_low_precision_does_not_explain_what_is_wrong_in_other_ways():
    def kernel(q, k, v, causal=False):
        out = kernels.single(q, k, v)
        return out if not causal else out[..., ::-1, :]

    found = conform(kernel, "attention", "causal")
    assert of(found, "attention").failure.mistake == "low-precision"
    assert of(found, "causal").failure.mistake != "low-precision"


@pytest.mark.slow
def test_a_mistake_without_a_name_leaves_the_others_their_search():
    def kernel(q, k, v):
        """Kv heads are tiled; where lengths differ there is noise."""
        share = q.shape[1] // k.shape[1]
        out = kernels.good(q, np.tile(k, (1, share, 1, 1)), np.tile(v, (1, share, 1, 1)))
        rng = np.random.default_rng(len(q))
        return out * (1 if k.shape[2] == q.shape[2] else 1 + 0.1 * rng.standard_normal(out.shape))

    found = conform(kernel, "attention", "lengths", "d_v ≠ d_k", "grouped heads", dtypes=("float32",))
    assert of(found, "lengths", "float32").failure.mistake is None
    assert of(found, "grouped heads", "float32").failure.mistake == "kv-heads-tiled"


def test_the_diagonal_with_key_lengths_is_a_convention():
    def ends(q, k, v, causal=False, key_lengths=None):
        """The last query sees the last key of each member, as with ONNX's nonpad_kv_seqlen."""
        s = kernels.scores(q, k)
        n, m = s.shape[-2:]
        last = np.full(len(q), n) if key_lengths is None else key_lengths
        i, j = np.arange(n)[:, None] + last[:, None, None, None] - n, np.arange(m)
        seen = (j < (m if key_lengths is None else last[:, None, None, None])) & ((j <= i) | (not causal))
        s = np.where(seen, s, -np.inf)
        top = s.max(-1, keepdims=True)
        e = np.exp(s - np.where(np.isneginf(top), 0, top))
        total = e.sum(-1, keepdims=True)
        return e / np.where(total == 0, 1, total) @ v

    found = conform(ends, "causal", "key_lengths", "pairs")
    assert found.agrees is True, str(found)
    assert found.conventions["causal with key lengths"] == "each length"


@pytest.mark.parametrize(("kernel", "keys"), [(kernels.sliding, "W"), (kernels.wider_sliding, "W + 1")])
def test_the_keys_of_a_sliding_window_are_a_convention(kernel, keys):
    found = attnctl.conform(
        lambda q, k, v, sliding_window=None: kernel(q, k, v, sliding_window),
        quick=True, features=["sliding_window"], dtypes=["float64"],
    )  # fmt: skip
    assert found.agrees is True, str(found)
    assert found.conventions["sliding window"] == keys
    assert found.conventions["ahead of a sliding window"] == "none"


def test_a_second_output_is_not_held_to_what_it_was_taken_for():
    """Only what someone declares is."""
    guessed = conform(kernels.with_wrong_sum, "attention", "causal")
    assert guessed.agrees is True
    assert guessed.notes[0].startswith("Output 1 looks like the log-sum-exp and is not judged")
    found = conform(kernels.with_wrong_sum, "attention", "causal", returns=("output", "logsumexp"))
    assert of(found, "attention").status == "passed"
    assert of(found, "causal").status == "failed"
    assert "output 1 is no log-sum-exp" in of(found, "causal").failure.words
    assert of(found, "causal").failure.mistake == "extra-output"


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("kernel", "layout"),
    [(kernels.tokens_first, "bnhd"), (kernels.plain_matrices, "nd"), (kernels.good, "hnd")],
)
def test_layouts(kernel, layout):
    found = conform(kernel, "attention", "lengths", "causal", "memory layouts", layout=layout)
    assert found.agrees is True, str(found)


def test_names_are_renamed():
    def kernel(value, key, query, *, future=True, factor=None):
        return kernels.good(query, key, value, not future, factor)

    found = conform(kernel, "attention", "scale", names={"factor": "scale"})
    assert [each.status for each in found.features] == ["passed", "passed"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"names": {"causal": "caus"}}, "did you mean causal?"),
        ({"features": ["casual"]}, "did you mean causal?"),
        ({"dtypes": ["float8"]}, "--dtype float8"),
        ({"layout": "bhdn"}, 'layout: "bhdn" is not one of the choices'),
        ({"like": "flsh"}, "did you mean flash?"),
        ({"framework": "tensorflow"}, "numpy, torch, jax"),
    ],
)
def test_what_there_is_not_is_refused(more, words):
    with pytest.raises(attnctl.AttnError, match=r".") as caught:
        attnctl.conform(kernels.good, **more)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: x, "and not Q, K and V"),
        (lambda q, k, v, rope_table: q, "rope_table, which attnctl does not know"),
        (lambda dy, q, k, v: q, "dy"),
        (type("Layer", (), {}), "Layer is a class; name one of it, like attention = Layer()"),
        (max, "signature cannot be read"),
        (17, "not a target"),
    ],
)
def test_what_cannot_be_called_is_refused(function, words):
    with pytest.raises(attnctl.AttnError) as caught:
        attnctl.conform(function)
    assert words in str(caught.value)


def test_the_report_as_json():
    data = conform(kernels.bad, "attention", "softcap", dtypes=("float32",)).to_dict()
    assert json.loads(json.dumps(data)) == data
    assert (data["target"], data["agrees"]) == ("bad", False)
    first, second = data["features"]
    assert first["feature"] == "attention"
    assert first["dtype"] == "float32"
    assert first["status"] == "failed"
    assert 0 < first["failed"] <= first["cases"]
    assert first["ratio"] > 1000
    assert first["mistake"] == "no-scale"
    assert "np.sqrt" in first["explanation"]
    assert second["status"] == "skipped"
    assert second["explanation"] == "nothing in its signature asks for it"
    assert set(first) >= {"replay"}


@pytest.mark.slow
def test_a_kernel_with_every_option_conforms_in_every_type():
    found = attnctl.conform(kernels.everything, quick=True)
    assert found.agrees is True, str(found)
    assert {each.feature for each in found.features} == set(NAMES) - {"conventions", "repeatable gradients"}


def test_the_text_names_the_mistake_once():
    text = str(conform(kernels.bad, "attention", "lengths", dtypes=("float64", "float32")))
    assert text.count("no-scale: ") == 1
    assert text.startswith("It does not conform")


def single_softmax(q, k, v, causal=False):
    """The softmax in float32 whatever the type, aligned at the bottom right."""
    s = kernels.scores(q, k)
    if causal:
        n, m = s.shape[-2:]
        s = np.where(np.tril(np.ones((n, m), dtype=bool), m - n), s, -np.inf)
    return kernels.softmax(s.astype(np.float32)).astype(q.dtype) @ v


@pytest.mark.slow
def test_a_convention_is_found_in_a_type_that_is_kept_in_float32_inside():
    found = conform(single_softmax, "causal", dtypes=("float64", "float32"))
    assert found.agrees is True, str(found)
    assert found.conventions["causal corner"] == "bottom-right"
    assert of(found, "causal", "float32").status == "passed"
    assert "right to the digits of float32 only" in of(found, "causal").reason
    alone = conform(single_softmax, "causal")
    assert alone.conventions["causal corner"] == "bottom-right"
    assert {each.failure.mistake for each in alone.wrong} == {"low-precision"}


def by_type(q, k, v, causal=False):
    """Aligned at the top left in float64, elsewhere at the bottom right: two libraries behind one name."""
    return (kernels.good if q.dtype == np.float64 else kernels.bottom_right)(q, k, v, causal=causal)


def test_a_row_that_a_mistake_leaves_without_keys_may_be_nan():
    """softmax of −∞ alone: the mask that hides a query's own key is the mistake, not the NaN."""

    def attention(q, k, v, causal=False):
        hidden = ~np.tri(q.shape[-2], k.shape[-2], -1 if causal else k.shape[-2], dtype=bool)
        s = np.where(hidden, -np.inf, q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
        e = np.exp(s - s.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True) @ v

    with np.errstate(invalid="ignore"):
        found = conform(attention, "causal")
    assert of(found, "causal").failure.mistake == "causal-strict"


def test_conventions_are_found_out_in_each_type():
    found = conform(by_type, "causal", dtypes=("float64", "float32", "float16"))
    assert found.agrees is True, str(found)
    said = found.conventions["causal corner"]
    assert said == "top-left (float64), bottom-right (float32, float16)"


@pytest.mark.slow
def test_a_saved_case_says_the_lengths_and_the_diagonal_of_each_sequence(tmp_path):
    """Where keys are padded, a window that ends at the last key of all is aligned wrong."""

    def attention(q, k, v, causal=False, window=None, mask=None, key_lengths=None):
        given = {"mask": mask, "key_lengths": key_lengths}
        if not causal or key_lengths is None:
            return kernels.everything(q, k, v, causal=causal, window=window, corner=1, **given)[0]
        first = (key_lengths - q.shape[-2])[:, None, None, None]
        own = np.arange(k.shape[-2]) <= first + np.arange(q.shape[-2])[:, None]
        return kernels.everything(q, k, v, **given | {"mask": own if mask is None else mask & own})[0]

    found = conform(attention, "pairs", dtypes=("float32",), save=tmp_path)
    failure = of(found, "pairs", "float32").failure
    dump = attnctl.load(failure.saved)
    assert dump.header["config"]["rules"] == [{"window": [2, 1]}]
    queries = dump.header["conform"]["case"]["queries"]
    lengths = dump.header["config"]["key_lengths"]
    assert dump.header["config"]["causal_offset"] == [length - queries for length in lengths]
    assert attnctl.check(dump).mistake == failure.mistake == "causal-aligned-wrong"


def letters_with_defaults(q, k, v, T=1.0, NH=7, C=0, num_heads=None):
    assert (T, NH, C, num_heads) == (1.0, 7, 0, q.shape[1])
    return kernels.good(q, k, v)


def letters_without(q, k, v, B, T, NH, C):
    batch, heads, queries, d_k = q.shape
    assert [batch, queries, heads, heads * d_k] == [B, T, NH, C]
    return kernels.good(q, k, v)


@pytest.mark.parametrize("kernel", [letters_with_defaults, letters_without])
def test_a_letter_or_two_are_a_size_only_where_they_must_be_given(kernel):
    assert conform(kernel, "attention").agrees is True


def test_what_must_be_given_and_is_not_known_is_said():
    with pytest.raises(
        attnctl.AttnError, match=r"given state, which attnctl does not know; --map state=OURS$"
    ):
        conform(lambda q, k, v, state: v, "attention")
