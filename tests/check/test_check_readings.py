"""What is only written down in another way, or lacks an option, is read so before anyone is accused."""

import numpy as np
import planted as own
import pytest
from check_foreign import foreign, meant, quietly

import attnctl
from attnctl.inputs.plan.intended import under_our_names


@pytest.mark.sample(6)
@pytest.mark.parametrize("what", own.RECORDED)
@pytest.mark.parametrize("kind", [own.SQUARE, own.SQUARE.but(causal=True), own.SQUARE.but(dtype=own.F32)])
def test_square_matrices_as_nn_linear_keeps_them_agree(kind, what):
    arrays = own.recorded(own.attend(kind, "weight-transposed"), what)
    report = attnctl.check(foreign(arrays), meant(kind))
    assert (report.agrees, report.reading) == (True, "W_Q W_K W_V W_O as (out, in)")
    assert str(report).startswith("agrees, reading W_Q W_K W_V W_O as (out, in): ")
    assert report.to_dict()["reading"] == report.reading


def test_a_single_transposed_matrix_is_a_mistake():
    arrays = own.attend(own.SQUARE, "weight-transposed/Q")
    report = attnctl.check(foreign(arrays), meant(own.SQUARE))
    assert (report.agrees, report.mistake, report.reading) == (False, "weight-transposed", "")


def test_as_many_tokens_as_heads():
    kind = own.CAUSAL.but(heads=6)
    arrays = own.attend(kind)
    for name in ("Q", "K", "V"):
        arrays[name] = arrays[name].swapaxes(-3, -2)
    kept = {name: arrays[name] for name in ("Q", "K", "V", "attention_weights", "output", "W_O")}
    report = attnctl.check(foreign(kept), meant(kind))
    assert (report.agrees, report.reading) == (True, "Q K V as (token, head, d_k)")


def test_packed_matrices_may_be_packed_in_either_way():
    arrays = own.attend(own.SQUARE)
    by_head = np.stack([arrays[name].reshape(8, 2, 4) for name in ("W_Q", "W_K", "W_V")], axis=2)
    thirds = np.concatenate([arrays[name] for name in ("W_Q", "W_K", "W_V")], axis=1)
    recorded = {"x": arrays["X"], "attn_weights": arrays["attention_weights"]}
    for name, matrix, read in (
        ("qkv.weight", by_head.reshape(8, 24).T, "qkv.weight as Q, K, V by head"),
        ("query_key_value.weight", thirds.T, "query_key_value.weight as Q, K, V in thirds"),
    ):
        report = attnctl.check({**recorded, name: matrix}, heads=2)
        assert (report.agrees, report.reading) == (True, read)


SAVED = ("scores", "logits", "attn_scores", "attn_logits", "S", "qk", "dots")
"""What people call scores, wherever they stand between Q Kᵀ and softmax."""

KEPT = ("Q", "K", "V", "attention_weights")


def saved(arrays, step, name="scores"):
    """A file with Q, K, V and weights, and one step under another name."""
    return {**{each: arrays[each] for each in KEPT}, name: arrays[step]}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", SAVED)
@pytest.mark.parametrize("step", ["scores", "scaled_scores", "softcapped_scores", "masked_scores"])
def test_scores_are_those_that_queries_and_keys_say(name, step):
    arrays = own.attend(own.CAPPED)
    report = attnctl.check(foreign_or_known(saved(arrays, step, name)), meant(own.CAPPED))
    reading = "" if step == "scores" else f"{name} as {step}"
    assert (report.agrees, report.reading) == (True, reading)
    assert str(report).startswith(f"agrees, reading {reading}: " if reading else "agrees: ")


def foreign_or_known(arrays):
    return under_our_names(foreign(arrays))


@pytest.mark.sample(6)
@pytest.mark.parametrize("step", ["scaled_scores", "masked_scores"])
@pytest.mark.parametrize(
    ("kind", "mistake"),
    [
        (own.CAUSAL, "no-scale"),
        (own.CAUSAL, "scale-by-d_k"),
        (own.SQUARE.but(causal=True), "scale-by-sqrt-d_model"),
        (own.CAUSAL, "scaled-twice/scores"),
        (own.CAUSAL, "mask-ignored"),
        (own.CAUSAL, "mask-inverted"),
        (own.CAUSAL, "causal-strict"),
        (own.CAUSAL, "softmax-over-queries"),
        (own.GROUPED, "kv-heads-tiled"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_scores_that_are_wrong_by_every_name_are_judged_by_the_nearest(kind, mistake, step):
    report = attnctl.check(foreign(saved(quietly(own.attend, kind, mistake), step)), meant(kind))
    (finding,) = report.findings
    assert mistake.split("/")[0] in {finding.mistake, *finding.also}
    if report.reading:
        assert f"Closest when read with {report.reading}." in str(report)


def test_scores_and_weights_alone_are_enough():
    arrays = own.attend(own.CAUSAL)
    report = attnctl.check(
        foreign({"scores": arrays["masked_scores"], "attention_weights": arrays["attention_weights"]}),
        meant(own.CAUSAL),
    )
    assert report.steps["attention_weights"].verdict.value == "agrees"
    assert report.reading == "scores as masked_scores"


# --- outputs ---

OUTPUTS = {
    "by head": lambda arrays: arrays["head_outputs"],
    "by head, tokens first": lambda arrays: arrays["head_outputs"].swapaxes(0, 1)[None],
    "side by side": lambda arrays: arrays["concat"],
}


@pytest.mark.parametrize("name", ["output", "attn_output"])
@pytest.mark.parametrize("shape", OUTPUTS.values(), ids=OUTPUTS)
def test_an_output_before_w_o_is_read_so_where_its_shape_says_it(shape, name):
    arrays = own.attend(own.CAUSAL)
    theirs = {**{each: arrays[each] for each in (*KEPT, "W_O")}, name: shape(arrays)}
    if theirs[name].ndim == 4:
        theirs |= {each: arrays[each][None] for each in KEPT}
    report = attnctl.check(foreign_or_known(theirs), meant(own.CAUSAL))
    assert report.agrees
    assert any(step in report.trace for step in ("concat", "head_outputs"))


def test_an_output_before_a_square_w_o_is_a_mistake_by_our_name_and_read_so_by_others():
    arrays = own.attend(own.SQUARE)
    theirs = {each: arrays[each] for each in (*KEPT, "W_O")}
    report = attnctl.check(foreign_or_known({**theirs, "attn_output": arrays["concat"]}), meant(own.SQUARE))
    assert (report.agrees, report.reading) == (True, "attn_output as concat")
    report = attnctl.check(foreign({**theirs, "output": arrays["concat"]}), meant(own.SQUARE))
    assert (report.mistake, report.unasked) == ("output-projection-missing", "--name output=concat")
    assert report.findings[0].fix.startswith("take concat @ W_O; or say --name output=concat")


# --- dropout ---


def test_dropout_is_named_by_the_weights_that_are_left():
    kind = own.CAUSAL.but(n=8, d=16, d_model=32)
    arrays = own.attend(kind)
    kept = np.random.default_rng(1).random(arrays["attention_weights"].shape) >= 0.2
    after = np.where(kept, arrays["attention_weights"] / 0.8, 0)
    theirs = {name: arrays[name] for name in ("Q", "K", "V")} | {"head_outputs": after @ arrays["V"]}
    report = attnctl.check(foreign(theirs | {"attention_weights": after}), meant(kind))
    assert [finding.mistake for finding in report.findings] == ["dropout-left-on"]
    assert "p = 0.2)" in report.findings[0].words
    assert report.first == "attention_weights"


# --- rotations ---


def turned_otherwise(queries, keys):
    """A run whose weights are those of queries and keys that are turned, or are not."""
    arrays = own.attend(own.ROTARY)
    scores = arrays[queries] @ arrays[keys].swapaxes(-1, -2) / own.ROTARY.d**0.5
    seen = np.tril(np.ones((own.ROTARY.n, own.ROTARY.n), bool))
    return {**arrays, "attention_weights": own.softmax(np.where(seen, scores, -np.inf))}


@pytest.mark.parametrize(
    ("queries", "keys", "mistake", "option"),
    [
        ("Q", "K", "rotary-missing", None),
        ("Q_rotated", "K", "rotary-one-sided", None),
        ("Q", "K_rotated", "rotary-one-sided", None),
    ],
)
def test_what_is_not_turned_is_told(queries, keys, mistake, option):
    arrays = turned_otherwise(queries, keys)
    kept = {name: arrays[name] for name in ("X", "W_Q", "W_K", "Q", "K", "attention_weights")}
    report = attnctl.check(foreign(kept), meant(own.ROTARY))
    assert (report.mistake, report.unasked) == (mistake, option)


@pytest.mark.parametrize("turned", ["Q K", "K"])
def test_what_was_written_down_after_it_was_turned_is_said_by_the_option_that_renames_it(turned):
    arrays = own.attend(own.ROTARY)
    kept = {name: arrays[f"{name}_rotated" if name in turned else name] for name in ("Q", "K")}
    report = attnctl.check(
        foreign({**kept, "attention_weights": arrays["attention_weights"]}), meant(own.ROTARY)
    )
    assert report.unasked == " ".join(f"--name {name}={name}_rotated" for name in turned.split())


# --- layouts ---


@pytest.mark.parametrize("what", ["head_outputs", "output"])
@pytest.mark.parametrize("kind", [own.CAUSAL, own.GROUPED, own.PLAIN.but(heads=3)])
def test_batch_token_head_needs_no_number_of_heads(kind, what):
    arrays = own.attend(kind)
    names = {"Q": "Q", "K": "K", "V": "V", what: "head_outputs"}
    theirs = {name: arrays[ours].swapaxes(0, 1)[None] for name, ours in names.items()}
    report = attnctl.check(foreign(theirs), meant(kind).with_(heads=None, kv_heads=None))
    assert report.agrees
    assert report.trace["head_outputs"].shape == arrays["head_outputs"].shape


# --- what nothing asks for ---


@pytest.mark.parametrize("mistake", [None, "no-scale", "scale-by-sqrt-d_model", "softmax-over-queries"])
def test_an_array_that_nothing_asks_for_is_a_line_of_the_report(mistake):
    arrays = own.attend(own.SQUARE, mistake)
    kept = {name: arrays[name] for name in (*KEPT, "output", "W_O")}
    more = {**kept, "masked_scores": arrays["scaled_scores"]}
    without, report = (attnctl.check(foreign(each), meant(own.SQUARE)) for each in (kept, more))
    assert (
        (report.agrees, report.mistake) == (without.agrees, without.mistake) == (mistake is None, mistake)
    )
    said = "masked_scores is left out: nothing asks for it, as --causal would."
    assert report.notes == (said,)
    assert said in str(report)


@pytest.mark.sample(3)
@pytest.mark.parametrize("mistake", [None, "no-scale", "scale-by-d_k"])
def test_a_mask_that_nobody_can_name_does_not_hide_a_mistake(mistake):
    arrays = own.attend(own.MASKED, mistake)
    kept = {name: arrays[name] for name in (*KEPT, "masked_scores")}
    report = attnctl.check(foreign(kept), meant(own.MASKED))
    assert (report.agrees, report.mistake) == (None if mistake is None else False, mistake)
    assert [each.step for each in report.cannot_tell] == ["masked_scores"]
    assert attnctl.check(foreign({**kept, "mask": arrays["mask"]}), meant(own.MASKED)).mistake == mistake


def test_what_nothing_asks_for_is_taken_as_it_is_where_nothing_else_is_there():
    arrays = own.attend(own.MASKED)
    kept = {name: arrays[name] for name in ("masked_scores", "attention_weights")}
    report = attnctl.check(foreign(kept), meant(own.MASKED))
    assert report.agrees
    assert report.notes[0].startswith("masked_scores is taken as it is")


UNASKED = {
    "--causal": (own.CAUSAL, {"heads": 2}),
    "--positions rope": (own.ROTARY.but(causal=False), {"heads": own.ROTARY.heads}),
    "--positions rope --causal": (own.ROTARY.but(causal=True), {"heads": own.ROTARY.heads}),
    "--positions alibi": (own.ALIBI.but(causal=False), {"heads": own.ALIBI.heads}),
    "--heads 2": (own.SQUARE, {}),
}


@pytest.mark.parametrize("option", UNASKED)
def test_an_option_that_was_not_asked_for_is_said_first(option):
    kind, asked = UNASKED[option]
    arrays = own.recorded(own.attend(kind), "inputs and output")
    report = attnctl.check(arrays, kv_heads=kind.kv_heads, **asked)
    assert (report.agrees, report.unasked) == (False, option)
    assert str(report).startswith(f"agrees with {option}, which was not asked for.\n")
    assert report.to_dict()["unasked"] == option


def test_an_option_with_a_number_is_said_too():
    arrays = own.recorded(own.attend(own.CAPPED.but(causal=False)), "weights and outputs")
    report = attnctl.check(arrays, heads=own.CAPPED.heads)
    assert report.mistake == "softcap-unasked"
    assert report.unasked.startswith("--softcap ")


def test_a_mistake_beside_an_option_is_still_a_mistake():
    arrays = own.attend(own.CAUSAL, "no-scale")
    kept = {name: arrays[name] for name in ("Q", "K", "scaled_scores", "attention_weights")}
    report = attnctl.check(kept, heads=2)
    assert (report.mistake, report.unasked) == ("no-scale", None)
