"""What a model goes on with: the tokens of transformers, from a cache, each with its logits and weights."""

import json
from pathlib import Path

import numpy as np
import pytest
from test_next import BERT, GPT2, IDS, T5, with_head

import attnctl
from attnctl.cli.program import program
from attnctl.inputs.config.settings import Settings
from attnctl.models import generate as generating
from attnctl.models.generate import Generating, generate
from attnctl.models.next import begin_pass
from attnctl.models.run import ModelInput

FROZEN = json.loads((Path(__file__).parent / "generated.json").read_text())
START = (9, 4, 17, 4, 26)
FLOAT32 = Settings(dtype="float32")


def goes_on(folder, count, **asked):
    prompt = begin_pass(folder, ModelInput(ids=START), FLOAT32)
    return generate(prompt, Generating(count, **asked))


@pytest.mark.sample(4)
@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", FROZEN)
def test_tokens_are_those_of_transformers_and_a_cache_changes_nothing(name, tmp_path, monkeypatch):
    folder = with_head(name, tmp_path)
    monkeypatch.setattr(generating, "ends_of", lambda name: frozenset())
    found = goes_on(folder, 6)
    assert [each.token.id for each in found.chosen] == FROZEN[name]
    monkeypatch.setattr(generating, "has_only_past", lambda d: False)
    whole = goes_on(folder, 6)
    np.testing.assert_allclose(found.trace["logits"], whole.trace["logits"], rtol=1e-4, atol=3e-5)


def test_only_new_rows_go_through_where_a_cache_does(monkeypatch):
    seen = []
    plain = generating.through
    monkeypatch.setattr(
        generating,
        "through",
        lambda tensors, hidden, *more: seen.append(len(hidden)) or plain(tensors, hidden, *more),
    )
    goes_on(GPT2, 3)
    assert seen == [5] * 3 + [1] * 9


def test_a_rope_that_goes_by_the_length_turns_all_keys_again(tmp_path):
    folder = with_head("llama", tmp_path)
    path = Path(folder) / "config.json"
    config = json.loads(path.read_text())
    config.pop("rope_parameters", None)
    scaling = {"rope_type": "dynamic", "factor": 2.0}
    path.write_text(json.dumps({**config, "rope_scaling": scaling, "max_position_embeddings": 7}))
    trace = goes_on(folder, 5).trace
    (at_once,) = attnctl.run_model(folder, ids=trace.header["ids"], next=32)
    np.testing.assert_allclose(trace["hidden"], at_once["hidden"], atol=1e-4)


def test_a_trace_of_it_says_why(tmp_path):
    (trace,) = attnctl.run_model(GPT2, ids=IDS, tokens=3)
    told = trace.header["generated"]["tokens"]
    assert [token["at"] for token in told] == [3, 4, 5]
    assert trace.header["ids"][4:] == [token["id"] for token in told]
    labels = trace.header["next_tokens"]
    for token in told:
        logit = trace["logits"][token["at"], labels.index(token["token"])]
        assert logit == pytest.approx(token["logit"], abs=1e-5)
        assert logit == pytest.approx(trace["logits"][token["at"]].max(), abs=1e-5)
    trace.save(tmp_path / "made.npz")
    assert program(["check", str(tmp_path / "made.npz")]) == 0


def test_layers_of_it_have_a_row_for_each_new_token():
    (made,) = attnctl.run_model(GPT2, ids=IDS, tokens=3)
    (trace,) = attnctl.run_model(GPT2, ids=IDS, tokens=3, layer=1)
    (at_once,) = attnctl.run_model(GPT2, ids=made.header["ids"], layer=1)
    np.testing.assert_array_equal(trace["attention_weights"], at_once["attention_weights"])
    assert trace.tokens == made.tokens


def test_edits_hold_for_all_that_follows():
    (trace,) = attnctl.run_model(GPT2, ids=IDS, tokens=3, edits=["1:mlp_output=0"])
    (at_once,) = attnctl.run_model(GPT2, ids=trace.header["ids"], next=32, edits=["1:mlp_output=0"])
    np.testing.assert_allclose(trace["hidden"], at_once["hidden"], atol=1e-5)
    (plain,) = attnctl.run_model(GPT2, ids=trace.header["ids"], next=32)
    assert abs(plain["hidden"] - trace["hidden"]).max() > 0.1


def test_tokens_are_drawn_by_a_seed_as_likely_as_they_are():
    first, again, other = (goes_on(GPT2, 20, temperature=1.5, seed=seed).tokens.ids for seed in (1, 1, 2))
    assert first == again
    assert first != other
    cold = goes_on(GPT2, 5, temperature=1e-6).tokens.ids
    assert cold == goes_on(GPT2, 5).tokens.ids


def test_a_draw_is_as_likely_as_its_probability():
    prompt = begin_pass(GPT2, ModelInput(ids=START), FLOAT32)
    row = prompt.last()[-1]
    draw = np.random.RandomState(0)
    asked = Generating(1, temperature=1.0)
    drawn = [generating.choose(prompt, row, 4, asked, draw) for _ in range(400)]
    best = [each for each in drawn if each.rank == 0]
    share = best[0].token.probability
    # Within four deviations of so many draws.
    assert len(best) / 400 == pytest.approx(share, abs=4 * (share * (1 - share) / 400) ** 0.5)


def test_a_text_ends_where_the_files_say(tmp_path):
    folder = with_head("llama", tmp_path)
    second = FROZEN["llama"][1]
    (Path(folder) / "generation_config.json").write_text(json.dumps({"eos_token_id": [second, 31]}))
    found = goes_on(folder, 6)
    assert found.ended
    assert found.chosen[-1].token.id in {second, 31}
    assert len(found.chosen) <= 2


def run(capsys, *args):
    code = program(["run", *map(str, args)])
    return (code, *capsys.readouterr())


def test_what_is_shown(capsys):
    code, out, err = run(capsys, "--model", GPT2, "--ids", "3,4,5", "--tokens", 2)
    assert (code, err) == (0, "")
    assert "after" in out
    assert "Where a logit comes from: attnctl explain last 'logits[" in out
    code, out, _ = run(capsys, "--model", GPT2, "--ids", "3,4,5", "--tokens", 2, "--json")
    assert len(json.loads(out)["generated"]["tokens"]) == 2


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--model", BERT, "--tokens", 2], "bert sees both ways; it does not go on"),
        (["--model", T5, "--tokens", 2], "t5 sees both ways; it does not go on"),
        (["--model", GPT2, "--tokens", 100], "103 tokens; gpt2 takes 32"),
        (["--model", GPT2, "--tokens", 0], "--tokens"),
        (["--model", GPT2, "--sample", 1], "--sample: tokens are drawn with --tokens N"),
        (["--model", GPT2, "--tokens", 2, "--sample", 0], "is not above 0"),
        (["--model", GPT2, "--tokens", 2, "--seed", 1], "--seed: means nothing with --model"),
        (["--model", GPT2, "--tokens", 2, "--next", 1], "--next: means nothing with --tokens"),
        (["--model", GPT2, "--tokens", 2, "--chat"], "--ids: means nothing with --chat"),
        (["--tokens", 2], "--ids: only a model has that"),
    ],
)
def test_what_is_refused(capsys, args, said):
    code, out, err = run(capsys, *args, "--ids", "3,4,5")
    assert (code, out) == (2, "")
    assert said in err
