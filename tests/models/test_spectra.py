"""What the weights of heads say: the eigenvalues of whole circuits, vocabulary × vocabulary."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from checkpoints import ROOT

from attnctl.models.attention import blank_rows, prepare_attention
from attnctl.models.source import open_model
from attnctl.verbs.models.spectra import find_spectra

MAKE = Path(__file__).parents[2] / "samples" / "circuit" / "make.py"


def share(circuit):
    """Σ λ / Σ |λ| of a circuit less what is the same for all tokens."""
    less = np.eye(len(circuit)) - 1 / len(circuit)
    found = np.linalg.eigvals(less @ circuit @ less)
    return found.real.sum() / np.abs(found).sum()


def through_norm(rows, weight, *, centred):
    return (rows - rows.mean(axis=-1, keepdims=True) if centred else rows) * weight


@pytest.mark.parametrize(("name", "plus", "centred"), [("gpt2", 0, True), ("gemma2", 1, False)])
def test_scores_are_those_of_whole_circuits(name, plus, centred):
    model = open_model(str(ROOT / name), dtype="float64")
    d, vocab = model.description, model.rows("embed")
    embed = model.outer("embed", ".weight", (vocab, d["width"]))
    final = model.outer("final_norm", ".weight", (d["width"],)) + plus
    unembed = through_norm(embed * final, 1, centred=centred)  # both are tied
    found = find_spectra(str(ROOT / name)).scores
    for layer in range(len(d.layers)):
        given = prepare_attention(model.layer(layer), blank_rows(model, 1)).given
        tokens = through_norm(embed, given["norm_weight"] + plus, centred=centred)
        after = given["output_norm_weight"] + plus if plus else 1
        for head in range(d["heads"]):
            kv = head * d["kv_heads"] // d["heads"]
            w_o = given["W_O"].reshape(d["heads"], -1, d["width"])[head] * after
            copying = share(tokens @ given["W_V"][kv] @ w_o @ unembed.T)
            matching = share(tokens @ given["W_Q"][head] @ (tokens @ given["W_K"][kv]).T)
            assert found["copying"][layer, head] == pytest.approx(copying, abs=1e-3)
            assert found["matching"][layer, head] == pytest.approx(matching, abs=1e-3)


def test_a_circuit_is_found_in_its_weights_and_not_in_those_of_its_broken_copy(tmp_path, call):
    for how in ([], ["--broken"]):
        subprocess.run([sys.executable, MAKE, tmp_path / "m", *how], check=True)
        found = json.loads(call("model", tmp_path / "m", "--heads", "--json").out)
        assert found["copying"][1][2] == pytest.approx(1)
        assert found["previous"][0][1] == (0 if how else 1)
        assert max(map(max, found["matching"])) == 0


def test_layers_without_keys_and_values_of_their_own_have_no_scores(call):
    found = json.loads(call("model", ROOT / "gemma4_text", "--heads", "--json").out)
    assert found["copying"][-2:] == [[None] * 4] * 2
    assert all(None not in row for row in found["copying"][:3])
    assert "–" in call("model", ROOT / "gemma4_text", "--heads").out


def test_heads_through_latent_rows_are_refused(call):
    done = call("model", ROOT / "deepseek-v3", "--heads")
    assert done.code == 2
    assert "deepseek_v3's heads do not read and write its embeddings by one matrix each" in done.err
