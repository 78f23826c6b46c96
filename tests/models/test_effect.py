"""What each head does to the next token: the numbers of hooks in transformers, shares that add up."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from checkpoints import ROOT
from test_next import with_head

import attnctl
from attnctl.base import workers
from attnctl.base.errors import AttnError
from attnctl.cli.program import program
from attnctl.verbs.effect import workers as by_workers
from attnctl.verbs.effect.view import findings

FROZEN = json.loads((Path(__file__).parent / "effects.json").read_text())
NAMES = [name for name, found in FROZEN.items() if isinstance(found, dict)]
IDS, OTHER, BETWEEN = FROZEN["ids"], FROZEN["other_ids"], FROZEN["between"]
HOW = {"zero": {}, "mean": {"mean": True}, "patch": {"patch": OTHER}}
GEMMA2, GPT2, BLOOM, T5 = (str(ROOT / name) for name in ("gemma2", "gpt2", "bloom-post", "t5"))
GEMMA3N = str(ROOT / "gemma3n_text")


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", NAMES)
def test_effects_are_those_of_hooks_in_transformers(name, how, tmp_path):
    found = attnctl.effect(model=with_head(name, tmp_path), ids=IDS, between=BETWEEN, **HOW[how])
    np.testing.assert_allclose(found.effect, FROZEN[name][how], atol=1e-4)
    assert found.difference == pytest.approx(FROZEN[name]["difference"], abs=1e-4)
    if how == "patch":
        assert found.other["difference"] == pytest.approx(FROZEN[name]["other"], abs=1e-4)


def test_effects_are_those_of_edits_whatever_goes_through_at_once(monkeypatch):
    found = attnctl.effect(model=GPT2, ids=IDS, between=BETWEEN)
    (trace,) = attnctl.run_model(GPT2, ids=IDS, next=32, edits=["1:head_outputs[2]=0"])
    logits = {token["id"]: token["logit"] for token in trace.header["next"]["tokens"]}
    after = logits[BETWEEN[0]] - logits[BETWEEN[1]]
    assert found.effect[1, 2] == pytest.approx(after - found.difference, abs=1e-5)
    monkeypatch.setattr("attnctl.verbs.effect.MOST_ROWS", 3 * len(IDS))
    three = attnctl.effect(model=GPT2, ids=IDS, between=BETWEEN)
    np.testing.assert_allclose(three.effect, found.effect, atol=1e-5)


def test_direct_shares_are_what_each_part_writes_and_add_up():
    found = attnctl.effect(model=GPT2, ids=IDS, between=BETWEEN, direct=True).direct
    traces = attnctl.run_model(GPT2, ids=IDS)
    (end,) = attnctl.run_model(GPT2, ids=IDS, next=32)
    labels = end.header["next_tokens"]
    toward = end["W_U"] @ [(label == str(BETWEEN[0])) - (label == str(BETWEEN[1])) for label in labels]
    row = end["hidden"][-1].astype(float)
    root = np.sqrt(row.var() + 1e-5)
    for layer, trace in enumerate(traces):
        for head, z in enumerate(trace["head_outputs"][:, -1]):
            written = z @ trace["W_O"][4 * head : 4 * head + 4]
            share = ((written - written.mean()) / root * end["norm_weight"]) @ toward
            assert found["heads"][layer][head] == pytest.approx(share, abs=1e-5)
    whole = found["embeddings"] + found["biases"] + np.sum(found["heads"]) + np.sum(found["networks"])
    assert found["sum"] == pytest.approx(whole)
    assert found["sum"] == pytest.approx(
        end["logits"][-1] @ [(label == str(BETWEEN[0])) - (label == str(BETWEEN[1])) for label in labels],
        abs=1e-4,
    )


def test_an_interrupted_run_goes_on(tmp_path):
    path, seen = tmp_path / "effect.json", []
    asked = {"model": GPT2, "ids": IDS, "between": BETWEEN, "save": path}

    def stop(done, total):
        seen.append(done)
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attnctl.effect(**asked, progress=stop)
    left = json.loads(path.read_text())["effect"]
    assert [None in row for row in left] == [False, True, True]
    again: list[int] = []
    whole = attnctl.effect(**asked, progress=lambda done, total: again.append(done))
    assert again == [8, 12]
    np.testing.assert_array_equal(whole.effect, attnctl.effect(model=GPT2, ids=IDS, between=BETWEEN).effect)
    assert json.loads(path.read_text()) == whole.to_dict()
    other = attnctl.effect(**{**asked, "between": (1, 2)})  # what is there is of something else
    assert other.difference != whole.difference


def run(capsys, *args):
    code = program(["effect", "--ids", "9,4,17,4,26", *map(str, args)])
    return (code, *capsys.readouterr())


def test_parts_that_change_it_as_much_are_named_together():
    found = attnctl.effect(model=GPT2, ids=IDS, between=BETWEEN)
    told = []
    for equal in (1, 2, 4):
        effect = np.zeros_like(found.effect)
        effect.flat[1 : 1 + equal] = -2.5
        told.append([*findings(replace(found, effect=effect))][1].partition(",")[0])
    assert told == [
        "Head 0.1 matters most: left out",
        "Head 0.1 and head 0.2 matter most: left out",
        "Head 0.1 and 3 others matter most: left out",
    ]


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (
            [],
            ["logit '5' − logit '9'", "matters most: left out", "layer 1", "attnctl run --ids 9,4,17"],
        ),
        (["--mean"], ["replaced by its mean over positions"]),
        (["--patch", "12,4,17,8,26"], ["taken from the other prompt", "of the way"]),
        (["--direct"], ["network", "embeddings", "before the cap on logits"]),
        (["--json"], ['"effect": [', '"how": "zero"']),
    ],
)
def test_what_is_shown(capsys, args, shown):
    code, out, err = run(capsys, "--model", GEMMA2, "--between", 5, 9, *args)
    assert (code, err) == (0, "")
    assert all(part in out for part in shown)


def test_files_hold_every_head(capsys, tmp_path):
    files = [tmp_path / f"effect{suffix}" for suffix in (".json", ".csv", ".svg", ".html")]
    options = [word for path in files for word in ("-o", path)]
    assert run(capsys, "--model", GEMMA2, "--between", 5, 9, *options) == (0, "", "")
    told = json.loads(files[0].read_text())
    assert np.shape(told["effect"]) == (2, 4)
    assert files[1].read_text().splitlines()[0] == "layer,head,effect"
    assert "<svg" in files[2].read_text()
    page = files[3].read_text()
    assert all(f'"effect": {json.dumps(cell)}' in page for row in told["effect"] for cell in row)
    assert "<title>Head " in page


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--model", GEMMA2], "missing: --between A B"),
        (["--between", 5, 9], "missing: --model DIR"),
        (["--model", GEMMA2, "--between", 5, 5], "--between: both are token 5; give two that differ"),
        (["--model", GEMMA2, "--between", 5, 32], "--between: no token 32; there are 32, from 0"),
        (["--model", GEMMA2, "--between", 5, "x"], "no tokenizer.json; give the ids of tokens instead"),
        (
            ["--model", GEMMA2, "--between", 5, 9, "--patch", "3,4"],
            "--patch: 2 tokens, but the prompt",
        ),
        (["--model", GEMMA2, "--between", 5, 9, "--patch", "x"], "--patch: x is not a whole number"),
        (["--model", GEMMA2, "--between", 5, 9, "--patch", "3", "--mean"], "leave one of them out"),
        (
            ["--model", BLOOM, "--between", 5, 9, "--direct"],
            "bloom: its stream goes on from a norm",
        ),
        (
            ["--model", GEMMA3N, "--between", 5, 9, "--direct"],
            "gemma3n_text: each layer predicts and corrects several streams",
        ),
        (["--model", T5, "--between", 5, 9], "t5 has no head that is read here"),
        (["hello", "--model", GEMMA2, "--between", 5, 9], "--ids: there is a prompt too"),
    ],
)
def test_what_is_refused(capsys, args, said):
    code, out, err = run(capsys, *args)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1


@pytest.fixture
def new_workers():
    """Workers that have begun no pass yet, and whose passes no others take over."""
    kept = (by_workers.pass_of, by_workers.difference_of)
    for each in kept:
        each.cache_clear()
    yield
    for each in kept:
        each.cache_clear()


@contextmanager
def in_this_process(engine):
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.mark.parametrize("how", HOW)
def test_workers_that_have_a_layer_each_give_the_same(how, monkeypatch, tmp_path):
    monkeypatch.setattr(workers, "open_executor", in_this_process)
    asked, path = {"model": GPT2, "ids": IDS, "between": BETWEEN, **HOW[how]}, tmp_path / "effect.json"
    alone, seen = attnctl.effect(**asked), []
    found = attnctl.effect(
        **asked, save=path, on="processes=1", progress=lambda done, total: seen.append((done, total))
    )
    np.testing.assert_array_equal(found.effect, alone.effect)
    assert json.loads(path.read_text())["effect"] == alone.to_dict()["effect"]
    assert seen[-1] == (12, 12)


def test_workers_measure_what_an_interrupted_run_left(monkeypatch, tmp_path):
    monkeypatch.setattr(workers, "open_executor", in_this_process)
    asked, path = {"model": GPT2, "ids": IDS, "between": BETWEEN}, tmp_path / "effect.json"
    whole = attnctl.effect(**asked).to_dict()
    left = [*whole["effect"][:1], [None] * 4, whole["effect"][2]]
    path.write_text(json.dumps({**whole, "effect": left}))
    measured = []
    plain = by_workers.measure_layer
    monkeypatch.setattr(
        by_workers, "measure_layer", lambda task: measured.append(task.layer) or plain(task)
    )
    assert attnctl.effect(**asked, save=path, on="processes=1").to_dict() == whole
    assert measured == [1]


def test_a_worker_with_another_model_is_refused(monkeypatch, new_workers):
    monkeypatch.setattr(workers, "open_executor", in_this_process)
    plain = by_workers.Prompt.begin
    begun = []

    def begin(prompt):
        begun.append(prompt)
        return plain(prompt if len(begun) == 1 else prompt._replace(model=BLOOM))

    monkeypatch.setattr(by_workers.Prompt, "begin", begin)
    with pytest.raises(AttnError, match="a worker has another model than this machine"):
        attnctl.effect(model=GPT2, ids=IDS, between=BETWEEN, on="processes=1")


@pytest.mark.slow
def test_processes_measure_the_layers(call):
    words = ["effect", "--ids", ",".join(map(str, IDS)), "--model", GPT2, "--between", *map(str, BETWEEN)]
    alone, by_two = call(*words, "--json"), call(*words, "--on", "processes=2", "--json")
    assert by_two == alone
    assert alone[0] == 0
