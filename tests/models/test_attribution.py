"""Effects that a gradient estimates are slopes of real patching; paths are what edits by hand give."""

import io
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from checkpoints import ROOT
from test_next import FROZEN, with_head

import attnctl
from attnctl.base.errors import AttnError
from attnctl.cli.program import program
from attnctl.math.names import OUTPUT
from attnctl.models.forward import through
from attnctl.verbs.effect.parts import LAYER, Replacement, edit_step, read_other

NAMES = [name.removesuffix(".json") for name in FROZEN if name.endswith(".json")]
IDS, OTHER, BETWEEN = [9, 4, 17, 4, 26], [12, 4, 17, 8, 26], (5, 9)
BY = ("head", "layer", "network", "position")
STEP = 0.02
GPT2 = str(ROOT / "gpt2")


def part_of_the_way(whole, step, self, made, others):
    return made + (whole(self, made, others) - made) * np.float32(step)


def layer_part_of_the_way(whole, step, self, tensors, hidden, members):
    """A layer whose two parts are both moved from what they are, the network not by way of attention."""
    own = read_other(tensors, hidden, LAYER)
    output = own.output + (self.other.output - own.output) * np.float32(step)
    network = own.network + (self.other.network - own.network) * np.float32(step)
    return through(tensors, hidden, None, edit_step(OUTPUT, lambda _: output), lambda _: network)[None]


def slopes_of_patching(monkeypatch, **asked) -> np.ndarray:
    """By how much effects change where parts are moved a little of the way, to either side."""
    by_layer = asked["by"] == LAYER
    name = "through" if by_layer else "instead"
    move = layer_part_of_the_way if by_layer else part_of_the_way
    whole = getattr(Replacement, name)
    found = []
    for step in (STEP, -STEP):
        moved = partial(move, whole, step)
        with monkeypatch.context() as patched:
            patched.setattr(Replacement, name, lambda self, *given, moved=moved: moved(self, *given))
            found.append(attnctl.effect(**asked).effect)
    forth, back = found
    return (forth - back) / (2 * STEP)


REFUSED = ("--attribution: ", "do not attend", "vectors of distances", "a mixer or a network")


@pytest.mark.sample(8)
@pytest.mark.thinned(2, "by")  # the gradient of a family is one, whatever is read off it
@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("name", NAMES)
def test_estimates_are_slopes_of_patching(name, by, monkeypatch, tmp_path):
    asked = {"model": with_head(name, tmp_path), "ids": IDS, "between": BETWEEN, "patch": OTHER}
    asked |= {"by": by, "at": -1}
    refusal = ""
    try:
        estimated = attnctl.effect(**asked, attribution=True)
    except AttnError as error:
        refusal = str(error)
    if refusal:
        assert any(words in refusal for words in REFUSED)
        return

    measured = slopes_of_patching(monkeypatch, **asked)
    np.testing.assert_allclose(estimated.effect, measured, atol=0.05 * np.abs(measured).max() + 1e-3)


MOST = ("llama", "gpt2", "gemma2", "qwen3", "phi", "opt", "falcon", "cohere", "glm4", "olmo2", "gptj")


@pytest.mark.parametrize("name", MOST)
def test_the_families_that_people_have_are_not_refused(name, tmp_path):
    found = attnctl.effect(model=with_head(name, tmp_path), ids=IDS, between=BETWEEN, attribution=True)
    assert found.estimated
    assert found.is_changed


@pytest.mark.parametrize("metric", ["logit", "logprob", "probability"])
@pytest.mark.parametrize("name", ["gpt2", "gemma2"])
def test_every_metric_has_its_slope(name, metric, monkeypatch, tmp_path):
    asked = {"model": with_head(name, tmp_path), "ids": IDS, "between": BETWEEN, "patch": OTHER}
    asked |= {"by": "head", "metric": metric}
    measured = slopes_of_patching(monkeypatch, **asked)
    found = attnctl.effect(**asked, attribution=True)
    np.testing.assert_allclose(found.effect, measured, atol=0.05 * np.abs(measured).max() + 1e-4)


def test_what_has_no_slope_is_refused():
    with pytest.raises(AttnError, match="a divergence has no slope where nothing is changed"):
        attnctl.effect(model=GPT2, ids=IDS, metric="divergence", attribution=True)


# --- paths ---


def difference_of(**asked) -> float:
    (trace,) = attnctl.run_model(GPT2, next=32, **asked)
    logits = {token["id"]: token["logit"] for token in trace.header["next"]["tokens"]}
    return logits[BETWEEN[0]] - logits[BETWEEN[1]]


def effects_along(*texts, **asked) -> dict:
    found = attnctl.path_effect(list(texts), model=GPT2, ids=IDS, between=BETWEEN, **asked)
    return {(each.sender, each.receiver): each.effect for each in found.paths}


def test_the_last_layer_reaches_the_logits_by_itself_and_by_its_network():
    found = effects_along("2.2->logits", "2.2->2.mlp")
    asked = {"ids": IDS, "layer": 2, "keep": ["residual", "mlp_output"]}
    (plain,) = attnctl.run_model(GPT2, **asked)
    (moved,) = attnctl.run_model(GPT2, **asked, edits=["2:head_outputs[2]=0"])
    last = plain["residual"] + plain["mlp_output"]
    before = difference_of_rows(last)
    assert before == pytest.approx(difference_of(ids=IDS), abs=1e-4)

    alone = difference_of_rows(moved["residual"] + plain["mlp_output"])
    by_network = difference_of_rows(plain["residual"] + moved["mlp_output"])
    assert found["2.2", "logits"] == pytest.approx(alone - before, abs=1e-4)
    assert found["2.2", "2.mlp"] == pytest.approx(by_network - before, abs=1e-4)


def difference_of_rows(rows: np.ndarray) -> float:
    (end,) = attnctl.run_model(GPT2, ids=IDS, next=32)
    row = rows[-1].astype(np.float64)
    normed = (row - row.mean()) / np.sqrt(row.var() + 1e-5)
    final = normed * end["norm_weight"] + end["norm_bias"]
    labels = end.header["next_tokens"]
    toward = [(label == str(BETWEEN[0])) - (label == str(BETWEEN[1])) for label in labels]
    return float(final @ end["W_U"] @ toward)


@pytest.mark.parametrize("role", ["q", "k", "v", ""])
def test_a_head_reads_what_another_writes(role):
    """By hand: into the layer's own step the rows are put that the head makes of the moved stream."""
    receiver = f"1.3.{role}" if role else "1.3"
    found = effects_along(f"0.1->{receiver}")
    first, own, _ = attnctl.run_model(GPT2, ids=IDS)
    (edited,) = attnctl.run_model(GPT2, ids=IDS, layer=0, edits=["0:head_outputs[1]=0"])
    moved = own["hidden"] + edited["residual"] - first["residual"]
    (of_moved,) = attnctl.run_model(GPT2, layer=1, hidden=moved)

    step = role.upper() or "head_outputs"
    edits = []
    for (row, column), number in np.ndenumerate(of_moved[step][3]):
        edits.append(f"1:{step}[3,{row},{column}]={float(number)!r}")
    expected = difference_of(ids=IDS, edits=edits) - difference_of(ids=IDS)
    assert found["0.1", receiver] == pytest.approx(expected, abs=2e-4)


def test_paths_of_all_heads_and_their_spellings():
    every = effects_along("*->1.3.q")
    assert [sender for sender, _ in every] == [f"0.{head}" for head in range(4)]
    assert effects_along("0.1→1.3.q")["0.1", "1.3.q"] == every["0.1", "1.3.q"]
    assert len(effects_along("*->*")) == 3 * 16
    assert effects_along("embed->0.2", patch=OTHER)["embed", "0.2"] != 0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1.2", "write 4.2->7.3"),
        ("1.2->0.1", "leads nowhere"),
        ("0.9->1.1", "no head 9; there are 4"),
        ("7.0->logits", "no layer 7; there are 3"),
        ("here->logits", "expected a head like 4.2"),
        ("0.1.q->logits", "leads nowhere"),
    ],
)
def test_paths_that_there_are_not(text, problem):
    with pytest.raises(AttnError, match=problem.replace(".", r"\.")):
        effects_along(text)


def test_paths_on_a_command_line(tmp_path: Path):
    given = ["effect", "--ids", "9,4,17,4,26", "--model", GPT2, "--between", "5", "9"]
    out = io.StringIO()
    file = tmp_path / "p.csv"
    assert program([*given, "--path", "*->1.3", "--path", "1.0->logits"], stdout=out) == 0
    assert "1.0" in out.getvalue()
    assert program([*given, "--path", "*->1.3", "-o", str(file)]) == 0
    assert file.read_text().splitlines()[0] == "sender,receiver,effect"
    said = io.StringIO()
    assert program([*given, "--path", "0.0->1.3", "-o", str(tmp_path / "p.svg")], stderr=said) == 2
    assert "of paths give .json or .csv" in said.getvalue()
    assert program([*given, "--attribution"], stdout=out) == 0
    assert "estimated by the gradient" in out.getvalue()
