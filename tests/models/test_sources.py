"""Where a model may come from: folders, shards, the cache of the hub; and what its tokenizer does."""

import hashlib
import shutil

import numpy as np
import pytest
from checkpoints import ROOT, expected_of

from attnctl.models.run import ModelInput, run_model
from attnctl.models.source import folder_of

IDS = ModelInput(ids=tuple(expected_of("llama")["input_ids"].tolist()))


def cached(cache, name):
    """A checkpoint as huggingface_hub keeps it: blobs, and a snapshot of links to them."""
    repository = cache / f"models--{name.replace('/', '--')}"
    snapshot, blobs = repository / "snapshots" / "abc123", repository / "blobs"
    for folder in (snapshot, blobs, repository / "refs"):
        folder.mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc123")
    for path in (ROOT / "llama").iterdir():
        blob = blobs / hashlib.sha256(path.name.encode()).hexdigest()
        shutil.copyfile(path, blob)
        (snapshot / path.name).symlink_to(f"../../blobs/{blob.name}")
    return snapshot


@pytest.mark.parametrize("name", ["someone/tiny-llama", "tiny"])
def test_a_hub_id_is_found_in_the_local_cache(tmp_path, monkeypatch, name):
    snapshot = cached(tmp_path, name)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert folder_of(name) == snapshot
    (trace,) = run_model(name, IDS, "1")
    np.testing.assert_allclose(trace["hidden"], expected_of("llama")["hidden_1"], rtol=1e-5, atol=1e-5)


def test_shards_and_several_layers():
    ids = ModelInput(ids=tuple(expected_of("mistral")["input_ids"].tolist()))
    assert len(list((ROOT / "mistral").glob("*.safetensors"))) > 1
    traces = run_model(str(ROOT / "mistral"), ids, "all")
    assert [trace.header["layer"] for trace in traces] == [0, 1]
    assert [trace.header["layer"] for trace in run_model(str(ROOT / "mistral"), ids, "-1")] == [1]


def test_only_what_is_asked_for_is_read():
    from attnctl.models.forward import attend_plainly, embed_ids, through
    from attnctl.models.source import open_model

    model = open_model(str(ROOT / "llama"))
    through(model.layer(0), embed_ids(model, [3, 4]), None, attend_plainly)
    assert not any(name.startswith("layers.1.") for name in model.checkpoint.used)
    assert "norm.weight" not in model.checkpoint.used


def test_norms_of_tensorflow_have_other_names(tmp_path):
    """gamma and beta for weight and bias, as the first checkpoints of BERT have them."""
    import json
    import struct

    folder = tmp_path / "bert"
    shutil.copytree(ROOT / "bert", folder, copy_function=shutil.copyfile)
    path = folder / "model.safetensors"
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    older = {
        name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): entry
        for name, entry in header.items()
    }
    text = json.dumps(older).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])
    ids = ModelInput(ids=tuple(expected_of("bert")["input_ids"].tolist()))
    one, other = (run_model(str(each), ids, "1")[0]["hidden"] for each in (folder, ROOT / "bert"))
    assert (one == other).all()


def test_an_edit_flows_into_later_layers():
    from attnctl.inputs.config.settings import Settings

    name = str(ROOT / "gpt2")
    plain = run_model(name, IDS, "0,2")
    edited = run_model(name, IDS, "0,2", Settings(dtype="float32", edits=("head_outputs[1]=0",)))
    assert not edited[0]["head_outputs"][1].any()
    assert edited[1]["head_outputs"].any()
    assert np.abs(edited[1]["hidden"] - plain[1]["hidden"]).max() > 1e-3
    alone = run_model(name, IDS, "0", Settings(dtype="float32", edits=("head_outputs[1]=0",)))
    assert (alone[0]["output"] == edited[0]["output"]).all()


def test_a_decoder_attends_to_what_the_encoder_made():
    expected = expected_of("t5")
    source = ModelInput(
        ids=tuple(expected["decoder_input_ids"].tolist()), context_ids=tuple(expected["input_ids"].tolist())
    )
    for part, name in (("decoder", "decoder_weights_1"), ("cross", "cross_weights_1")):
        (trace,) = run_model(str(ROOT / "t5"), source, f"{part}.1")
        np.testing.assert_allclose(trace["attention_weights"], expected[name], rtol=1e-5, atol=1e-5)
