"""The next token: logits are those of transformers, for every family that has a head."""

import json
import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from checkpoints import ROOT, expected_of
from sweep import drawn, write_tensors

import attnctl
from attnctl.cli.program import program
from attnctl.models import next as next_tokens
from attnctl.models.source import open_model
from attnctl.models.tensors import Checkpoint

with np.load(Path(__file__).parent / "logits.npz") as found:
    FROZEN = dict(found)
NAMES = [name for name in FROZEN if not name.endswith(".json")]
GPT2, LLAMA, GEMMA2, VIT, T5, BERT = (
    str(ROOT / name) for name in ("gpt2", "llama", "gemma2", "vit", "t5", "bert")
)
IDS = [3, 4, 5, 6]
DESCRIPTION = re.compile(r'id="attnctl-report">(.*?)</script>', re.DOTALL)


def with_head(name, folder):
    """The checkpoint of a case with the head that the frozen logits are of."""
    made = json.loads(str(FROZEN[f"{name}.json"]))
    own = Checkpoint(ROOT / name).tensors
    tensors = {key: tensor.load() for key, tensor in own.items() if tensor.dtype.kind == "f"}
    write_tensors(
        folder,
        made["config"],
        tensors | {key: drawn(key, tuple(size)) for key, size in made["head"].items()},
    )
    return str(folder)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_transformers(name, tmp_path):
    folder, ids = with_head(name, tmp_path), expected_of(name)["input_ids"].tolist()
    (trace,) = attnctl.run_model(folder, ids=ids, next=10**9, at=2)
    told = trace.header["next"]["tokens"]
    order = np.argsort([token["id"] for token in told])
    np.testing.assert_allclose(trace["logits"][:, order], FROZEN[name], rtol=1e-4, atol=1e-4)
    shares = np.exp(FROZEN[name][2] - np.logaddexp.reduce(FROZEN[name][2]))
    np.testing.assert_allclose(np.array([token["probability"] for token in told])[order], shares, atol=1e-5)
    assert [token["logit"] for token in told] == sorted((token["logit"] for token in told), reverse=True)


def test_the_lens_ends_with_what_the_model_says():
    (trace,) = attnctl.run_model(GPT2, ids=IDS, next=1)
    lens = attnctl.lens(GPT2, ids=IDS)
    assert lens.names == ["embeddings", "layer 0", "layer 1", "layer 2"]
    assert lens.layers[-1][-1]._asdict() == pytest.approx(trace.header["next"]["tokens"][0])
    (state,) = attnctl.run_model(GPT2, ids=IDS, layer=2, keep=["hidden"])  # what left layer 1
    model = open_model(GPT2)
    rows = (
        model.norm("final_norm", state["hidden"])
        @ model.checkpoint.read("transformer.wte.weight", (32, 16), "float32").T
    )
    assert [token.id for token in lens.layers[2]] == rows.argmax(axis=-1).tolist()


def run(capsys, *args):
    code = program(["run", *map(str, args)])
    return (code, *capsys.readouterr())


def test_a_logit_is_explained_and_checked(capsys, tmp_path):
    dump = tmp_path / "next.npz"
    assert run(capsys, "--model", GEMMA2, "--ids", "3,4,5", "--next", 3, "-o", dump)[0] == 0
    assert program(["check", str(dump)]) == 0
    trace = attnctl.load(dump)
    assert list(trace) == ["hidden", "norm_weight", "final", "W_U", "raw_logits", "logits"]
    (token, *_) = trace.header["next"]["tokens"]
    assert float(attnctl.explain(trace, f'logits[-1,"{token["token"]}"]').value) == pytest.approx(
        token["logit"]
    )


def test_a_page_opens_with_what_comes_next(capsys, tmp_path):
    dump, page = tmp_path / "next.json", tmp_path / "next.html"
    outputs = ("-o", dump, "-o", page)
    assert run(capsys, "--model", GPT2, "--ids", "3,4,5,6", "--next", 3, "--at", 1, *outputs)[0] == 0
    said, data = page.read_text(), json.loads(dump.read_text())
    (likeliest, *_) = data["next"]["tokens"]
    assert f"{likeliest['token']}' is the likeliest token after token 1, '4'" in unescape(said)
    assert f"<td>{likeliest['logit']:.4f}</td>" in said
    assert json.loads(DESCRIPTION.search(said)[1])["look"]["cell"] == {"step": "logits", "at": [1, 0]}
    for junk in (
        "x",
        {},
        {"at": 0, "tokens": [{**likeliest, "text": 5}]},
        {"at": 9, "tokens": []},
        {"at": 0, "tokens": [{}]},
        {"at": "0", "tokens": [1]},
    ):
        dump.write_text(json.dumps(data | {"next": junk}))
        assert program(["show", str(dump), "-o", str(page)]) == 0
        assert "likeliest" not in page.read_text()


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (["--next", 2, "--at", 0], ["after token 0", "2 of 32 tokens", "attnctl explain last"]),
        (["--next", 99], ["32 of 32 tokens, 100.0% of the probability"]),
        (["--next", 2, "--step", "logits"], ["logits   ℓ = final W_U   4 × 2 (query, vocab)"]),
        (["--next", 2, "--json"], ['"next": {"at": 3, "vocabulary": 32, "tokens": [{"id": 13,']),
        (["--lens"], ["after", "embeddings", "layer 2"]),
        (["--lens", "--json"], ['"after": "layer 2"', '"probability"']),
    ],
)
def test_what_is_shown(capsys, args, shown):
    code, out, err = run(capsys, "--model", GPT2, "--ids", "3,4,5,6", *args)
    assert (code, err) == (0, "")
    assert all(part in out for part in shown)


@pytest.mark.parametrize(
    ("model", "args", "said"),
    [
        (GPT2, ["--next", 0], "--next: 0 is too small"),
        (GPT2, ["--next", 2, "--at", 4], "--at: no position 4; there are 4, from 0 to 3"),
        (GPT2, ["--at", 1], "--at: only --next has that"),
        (GPT2, ["--next", 2, "--layer", 1], "--layer: means nothing with --next"),
        (GPT2, ["--next", 2, "--lens"], "--next: means nothing with --lens"),
        (GPT2, ["--lens", "-o", "x.npz"], "no format for the suffix '.npz'"),
        (GPT2, ["--lens", "--format", "csv"], "--lens: prints a table"),
        (VIT, ["--next", 2], "vit has no head that is read here"),
        (T5, ["--next", 2], "t5 has no head that is read here"),
        (
            LLAMA,
            ["--next", 2],
            "no tensor lm_head.weight: the checkpoint has the layers of llama, not its head",
        ),
        (
            BERT,
            ["--next", 2],
            "no tensor cls.predictions.transform.dense.weight: the checkpoint has the layers",
        ),
    ],
)
def test_what_is_refused(capsys, model, args, said):
    code, out, err = run(capsys, "--model", model, "--ids", "3,4,5,6", *args)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1


def test_the_norm_of_a_head_has_the_names_of_tensorflow_too(tmp_path):
    new, old = with_head("bert", tmp_path / "new"), tmp_path / "old"
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    renamed = {
        "predictions.transform.LayerNorm.weight": "gamma",
        "predictions.transform.LayerNorm.bias": "beta",
    }
    tensors = {}
    for key, tensor in Checkpoint(tmp_path / "new").tensors.items():
        other = next((word for end, word in renamed.items() if key.endswith(end)), None)
        tensors[key if other is None else f"{key.rpartition('.')[0]}.{other}"] = tensor.load()
    write_tensors(old, config, tensors)
    one, two = (attnctl.run_model(folder, ids=IDS, next=3, at=1)[0] for folder in (new, str(old)))
    np.testing.assert_array_equal(one["logits"], two["logits"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"next": 0}, "next: 0 is too small"),
        ({"next": "x"}, "next: "),
        ({"at": 1}, "at: means nothing here"),
        ({"next": 1, "layer": 0}, "layer: means nothing here"),
    ],
)
def test_what_python_is_refused(given, said):
    with pytest.raises(attnctl.AttnError, match=said):
        attnctl.run_model(GPT2, ids=IDS, **given)


def test_an_encoder_is_asked_where_it_has_a_mask(capsys, tmp_path):
    folder = with_head("bert-old-names", tmp_path)
    assert (
        "sees both ways, and there is no [MASK]"
        in run(capsys, "--model", folder, "--ids", "3,4", "--next", 1)[2]
    )
    assert run(capsys, "--model", folder, "--ids", "3,4", "--next", 1, "--at", -1)[0] == 0


class FewWords:
    """A tokenizer that knows fewer ids than the model has rows."""

    def __init__(self, folder):
        self.tokenizer = self

    def id_to_token(self, number):
        return {1: "ĠI"}.get(number)

    def decode(self, ids, *, skip_special_tokens):
        assert not skip_special_tokens
        return " I"

    def label(self, number, token):
        return token.replace("Ġ", "␣")


def test_a_row_that_has_no_token_is_named_by_its_id(monkeypatch):
    monkeypatch.setattr(next_tokens, "Words", FewWords)
    assert next_tokens.token_names(GPT2)([1, 2]) == [("␣I", " I"), ("2", "2")]
