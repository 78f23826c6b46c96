"""Effects by layer, network and position, in other metrics, and over many prompts."""

import json
from itertools import pairwise

import numpy as np
import pytest
from test_effect import BETWEEN, FROZEN, GPT2, IDS, NAMES, OTHER
from test_next import with_head

import attnctl
from attnctl.cli.program import program

BY = ("layer", "network", "position")
CASES = [
    (name, by, how)
    for name in NAMES
    for by in BY
    for how in ("zero", "patch")
    if f"{by} {how}" in FROZEN[name]
]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("name", "by", "how"), CASES)
def test_effects_of_parts_are_those_of_hooks_in_transformers(name, by, how, tmp_path):
    patch = OTHER if how == "patch" else None
    found = attnctl.effect(model=with_head(name, tmp_path), ids=IDS, between=BETWEEN, by=by, patch=patch)
    np.testing.assert_allclose(found.effect, FROZEN[name][f"{by} {how}"], atol=1e-4)


def logits_after(edit=(), at=None):
    (trace,) = attnctl.run_model(GPT2, ids=IDS, next=32, at=at, edits=edit)
    told = {token["id"]: token["logit"] for token in trace.header["next"]["tokens"]}
    return np.array([told[number] for number in sorted(told)])


def log_softmax(logits):
    return logits - np.logaddexp.reduce(logits)


METRICS = {
    "logit": lambda before, after: after[5] - before[5],
    "logprob": lambda before, after: log_softmax(after)[5] - log_softmax(before)[5],
    "probability": lambda before, after: np.exp(log_softmax(after)[5]) - np.exp(log_softmax(before)[5]),
    "divergence": lambda before, after: np.sum(
        np.exp(log_softmax(before)) * (log_softmax(before) - log_softmax(after))
    ),
}


@pytest.mark.parametrize("at", [None, 2])
@pytest.mark.parametrize("metric", METRICS)
def test_a_metric_is_what_an_edited_run_says(metric, at):
    found = attnctl.effect(model=GPT2, ids=IDS, between=BETWEEN, by="network", metric=metric, at=at)
    expected = METRICS[metric](logits_after(at=at), logits_after(["1:mlp_output=0"], at))
    assert found.effect[1, 0] == pytest.approx(expected, abs=1e-5)


def test_without_tokens_the_likeliest_are_asked():
    found = attnctl.effect(model=GPT2, ids=IDS, metric="logprob")
    best = np.argsort(-logits_after())[:2].tolist()
    assert [token.id for token in found.between] == best
    with pytest.raises(attnctl.AttnError, match="between: missing"):
        attnctl.effect(model=GPT2, ids=IDS)


def test_the_network_of_a_run_is_edited_where_it_says():
    plain = attnctl.run_model(GPT2, ids=IDS, keep=["residual", "hidden", "mlp_output"])
    for before, after in pairwise(plain):
        whole = before["residual"] + before["mlp_output"]
        np.testing.assert_allclose(whole, after["hidden"], rtol=1e-5, atol=1e-5)
    edited = attnctl.run_model(GPT2, ids=IDS, edits=["1:mlp_output[2]=0"])
    assert [("mlp_output" in trace) for trace in edited] == [False, True, False]
    assert not edited[1]["mlp_output"][2].any()
    np.testing.assert_array_equal(edited[1]["residual"][2], edited[2]["hidden"][2])
    np.testing.assert_array_equal(edited[1]["mlp_output"][0], plain[1]["mlp_output"][0])


def test_a_vector_is_added_to_a_network(tmp_path):
    (other,) = attnctl.run_model(GPT2, ids=OTHER, layer=1, keep=["mlp_output"])
    other.save(tmp_path / "steer.npz")
    plain = attnctl.run_model(GPT2, ids=IDS, keep=["hidden"])
    steered = attnctl.run_model(GPT2, ids=IDS, edits=[f"1:mlp_output+=@{tmp_path / 'steer.npz'}"])
    moved = steered[2]["hidden"] - plain[2]["hidden"]
    np.testing.assert_allclose(moved, other["mlp_output"], atol=1e-5)


def test_a_decoder_asks_for_its_network_behind_what_it_attends_to():
    t5 = GPT2.replace("gpt2", "t5")
    asked = {"ids": [3, 4], "context_ids": [5, 6], "keep": ["mlp_output"]}
    (trace,) = attnctl.run_model(t5, layer="cross.1", **asked)
    assert trace["mlp_output"].shape == (2, 16)
    (before,) = attnctl.run_model(t5, layer="cross.0", **{**asked, "keep": ["residual", "mlp_output"]})
    (after,) = attnctl.run_model(t5, layer="decoder.1", **{**asked, "keep": ["hidden"]})
    np.testing.assert_allclose(before["residual"] + before["mlp_output"], after["hidden"], atol=1e-4)


PROMPTS = [
    {"prompt": IDS, "other": OTHER, "a": 5, "b": 9},
    {"prompt": [9, 4, 7, 4, 26], "other": [12, 4, 17, 8, 25], "a": 9, "b": 5},
]


def test_many_prompts_have_a_mean_and_a_spread(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(map(json.dumps, PROMPTS)) + "\n")
    found = attnctl.mean_effect(path, model=GPT2, by="layer")
    each = [
        attnctl.effect(
            model=GPT2, ids=line["prompt"], patch=line["other"], between=(line["a"], line["b"]), by="layer"
        ).effect
        for line in PROMPTS
    ]
    np.testing.assert_allclose(found.effect, np.mean(each, axis=0))
    np.testing.assert_allclose(found.spread, np.std(each, axis=0, ddof=1))
    assert attnctl.mean_effect(PROMPTS, model=GPT2, by="layer").to_dict() == found.to_dict()


def run(capsys, *args):
    code = program(["effect", "--model", GPT2, *map(str, args)])
    return (code, *capsys.readouterr())


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (
            ["--by", "position"],
            ["What comes into layer 2 at position 4", "each row of a position left out"],
        ),
        (["--by", "network", "--metric", "divergence"], ["nats from what it was", "each network left out"]),
        (["--by", "layer", "--metric", "probability", "--at", 1], ["after token 1", "Change in p(A)"]),
    ],
)
def test_what_is_shown_of_one(capsys, args, shown):
    code, out, err = run(capsys, "--ids", "9,4,17,4,26", "--between", 5, 9, *args)
    assert (code, err) == (0, "")
    assert all(part in out for part in shown)


def test_what_is_shown_of_many(capsys, tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(map(json.dumps, PROMPTS)))
    code, out, _ = run(capsys, "--prompts", path, "--by", "position")
    assert code == 0
    assert "logit A − logit B of 2 prompts" in out
    assert "give or take" in out
    assert "Its standard deviation over the prompts" in out
    files = [tmp_path / f"o{suffix}" for suffix in (".csv", ".json", ".svg")]
    options = [word for file in files for word in ("-o", file)]
    assert run(capsys, "--prompts", path, "--by", "position", *options) == (0, "", "")
    assert files[0].read_text().startswith("layer,position,effect,spread\n0,0,")
    assert len(json.loads(files[1].read_text())["prompts"]) == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", ":1: expected a JSON object, like"),
        ('{"promt": "x"}', ":1: unknown key 'promt'; did you mean"),
        ('{"prompt": 3}', ":1: \"prompt\" is '3', expected a text or a list of ids"),
        ('{"prompt": [3], "a": 1}', ':1: "a" and "b": give both tokens, or none'),
        ('{"prompt": [3], "a": true, "b": 2}', ":1: \"a\" is 'True', expected the text or the id"),
        ("", ": no prompt in it; write one a line"),
        ('{"prompt": [3], "other": [4], "a": 1, "b": 2}\n{"prompt": [3]}', '1 of 2 have "other"'),
    ],
)
def test_lines_that_are_none_are_named(capsys, tmp_path, line, said):
    path = tmp_path / "prompts.jsonl"
    path.write_text(line)
    code, out, err = run(capsys, "--prompts", path, "--between", 5, 9)
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ["--ids", "3,4", "--between", 5, 9, "--by", "layer", "--direct"],
            "--direct: shares are those of heads",
        ),
        (["--ids", "3,4", "--between", 5, 9, "--by", "row"], "is not one of the choices"),
        (["--ids", "3,4", "--between", 5, 9, "--at", 2], "--at: no position 2; there are 2"),
        (["--ids", "3,4", "--between", 5, 9, "--by", "layer", "-o", "{}/x.html"], "a page is of the heads"),
        (["--prompts", "{}/none.jsonl"], "none.jsonl: cannot be read"),
        (["--prompts", "{}/none.jsonl", "--ids", 3], "--ids: the prompts of --prompts say it"),
        (["--prompts", "{}/none.jsonl", "--direct"], "--direct: shares are those of one prompt"),
    ],
)
def test_what_is_refused(capsys, tmp_path, args, said):
    code, out, err = run(capsys, *(str(word).format(tmp_path) for word in args))
    assert (code, out) == (2, "")
    assert said in err


def test_positions_of_other_lengths_are_refused(capsys, tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": [3, 4]}\n{"prompt": [3, 4, 5]}')
    code, _, err = run(capsys, "--prompts", path, "--between", 5, 9, "--by", "position")
    assert code == 2
    assert "prompts of 2 to 3 tokens; --by position lays them over each other" in err
