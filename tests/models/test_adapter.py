"""LoRA: a model with an adapter has the matrices W + s · B A; what does not fit is refused."""

import json
import shutil

import numpy as np
import pytest
from checkpoints import ROOT

from attnctl.base.errors import AttnError
from attnctl.models.adapter import open_adapter
from attnctl.models.run import ModelInput, run_model
from attnctl.models.source import files_of, open_model
from attnctl.models.tensors import Checkpoint
from attnctl.store.safetensors import write_tensors

IDS = ModelInput(ids=(3, 5, 9, 4))
RANK = 3


def draw(stream, *shape):
    return stream.standard_normal(shape).astype(np.float32)


def write_adapter(folder, tensors, **said):
    folder.mkdir(exist_ok=True)
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": 6, "base_model_name_or_path": "org/base"}
    (folder / "adapter_config.json").write_text(json.dumps({**config, **said}))
    with (folder / "adapter_model.safetensors").open("wb") as stream:
        write_tensors(tensors, stream, {})
    return folder


def halves(module, rows, columns, rank=RANK, seed=0):
    """A and B of a matrix of so many rows, which give columns, as PEFT names them."""
    stream = np.random.RandomState(seed)
    start = f"base_model.model.model.{module}"
    return {
        f"{start}.lora_A.weight": draw(stream, rank, columns),
        f"{start}.lora_B.weight": draw(stream, rows, rank),
    }


def merged(folder, name, changes, of="llama"):
    """A copy of a checkpoint with these matrices changed."""
    source = ROOT / of
    shutil.copytree(source, folder, copy_function=shutil.copyfile, dirs_exist_ok=True)
    tensors = {each: np.array(tensor.load()) for each, tensor in Checkpoint(source).tensors.items()}
    for each, change in changes.items():
        tensors[each] = tensors[each] + change
    with (folder / "model.safetensors").open("wb") as stream:
        write_tensors(tensors, stream, {})
    return str(folder)


def both(tensors, module):
    start = f"base_model.model.model.{module}"
    return tensors[f"{start}.lora_B.weight"] @ tensors[f"{start}.lora_A.weight"]


Q, DOWN = "layers.0.self_attn.q_proj", "layers.1.mlp.down_proj"


@pytest.mark.parametrize(
    ("said", "scales"),
    [
        ({}, {Q: 2.0, DOWN: 2.0}),
        ({"use_rslora": True}, {Q: 6 / 3**0.5, DOWN: 6 / 3**0.5}),
        ({"alpha_pattern": {"q_proj": 12}}, {Q: 4.0, DOWN: 2.0}),
        ({"alpha_pattern": {"layers.1.mlp.down_proj": 1.5}}, {Q: 2.0, DOWN: 0.5}),
        ({"r": 8, "rank_pattern": {"q_proj": 3, "down_proj": 3}}, {Q: 2.0, DOWN: 2.0}),
    ],
)
def test_a_matrix_is_changed_by_its_scale_times_b_a(tmp_path, said, scales):
    tensors = {**halves(Q, 32, 16), **halves(DOWN, 16, 24, seed=1)}
    adapter = write_adapter(tmp_path / "lora", tensors, **said)
    changes = {f"{module}.weight": scale * both(tensors, module) for module, scale in scales.items()}
    right = merged(tmp_path / "merged", "llama", changes)
    name = f"{ROOT / 'llama'} --adapter {adapter}"
    found, expected = (run_model(each, IDS, "all") for each in (name, right))
    for ours, theirs in zip(found, expected, strict=True):
        for step in ("Q", "attention_weights", "output"):
            np.testing.assert_allclose(ours[step], theirs[step], rtol=2e-5, atol=2e-5)
    plain = run_model(str(ROOT / "llama"), IDS, "0")[0]
    assert np.abs(found[0]["Q"] - plain["Q"]).max() > 0.1
    assert found[0].header["model"] == name


def test_parts_of_a_changed_matrix_are_those_of_the_whole(tmp_path):
    adapter = write_adapter(tmp_path / "lora", halves(Q, 32, 16))
    checkpoint = open_model(f"{ROOT / 'llama'} --adapter {adapter}").checkpoint
    whole = checkpoint.read(f"{Q}.weight", (32, 16), "float32")
    for part in ((slice(1, 4), slice(None)), (slice(None), slice(3, 6)), np.array([4, 0, 4])):
        found = checkpoint.read(f"{Q}.weight", (32, 16), "float32", part)
        np.testing.assert_allclose(found, whole[part], rtol=1e-6)


def test_matrices_of_conv1d_are_changed_the_other_way_round(tmp_path):
    stream = np.random.RandomState(3)
    names = {name: tensor.shape for name, tensor in Checkpoint(ROOT / "gpt2").tensors.items()}
    (name,) = (each for each in names if each.endswith("h.0.attn.c_attn.weight"))
    rows, columns = names[name]
    a, b = draw(stream, RANK, rows), draw(stream, columns, RANK)
    start = "base_model.model.transformer.h.0.attn.c_attn"
    adapter = write_adapter(
        tmp_path / "lora", {f"{start}.lora_A.weight": a, f"{start}.lora_B.weight": b}, fan_in_fan_out=True
    )
    right = merged(tmp_path / "merged", "gpt2", {name: 2 * (b @ a).T}, of="gpt2")
    found, expected = (
        run_model(each, IDS, "0")[0] for each in (f"{ROOT / 'gpt2'} --adapter {adapter}", right)
    )
    np.testing.assert_allclose(found["output"], expected["output"], rtol=2e-5, atol=2e-5)


def test_what_was_trained_in_whole_stands_in_place_of_the_models(tmp_path):
    norm = np.full(16, 3, np.float32)
    adapter = write_adapter(tmp_path / "lora", {"base_model.model.model.norm.weight": norm})
    checkpoint = open_model(f"{ROOT / 'llama'} --adapter {adapter}").checkpoint
    np.testing.assert_array_equal(checkpoint.read("norm.weight", (16,), "float32"), norm)


def test_a_port_with_its_adapter_is_held_to_the_model_with_it(tmp_path):
    """What came into each layer, as `check --model` reads it: right with the adapter, wrong without."""
    from attnctl.models.forward import embed_ids, states
    from attnctl.verbs.check.layers import check_port

    adapter = write_adapter(tmp_path / "lora", halves(Q, 32, 16))
    name = f"{ROOT / 'llama'} --adapter {adapter}"
    model = open_model(name)
    arrays = {f"hidden_{at}": rows for at, rows in states(model, embed_ids(model, list(IDS.ids)))}
    assert all(layer.agrees for layer in check_port(name, arrays))
    assert [layer.agrees for layer in check_port(str(ROOT / "llama"), arrays)] == [False, True]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_peft_says_the_same(tmp_path):
    """The adapter as PEFT itself writes it, and the rows as it computes them, where it is installed."""
    peft, torch = pytest.importorskip("peft"), pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(ROOT / "llama", dtype=torch.float32)
    settings = peft.LoraConfig(r=4, lora_alpha=7, target_modules=["q_proj", "v_proj"], use_rslora=True)
    wrapped = peft.get_peft_model(model, settings).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for name, weights in wrapped.named_parameters():
            if "lora_" in name:
                weights.normal_(0, 0.3)
        wrapped.save_pretrained(tmp_path)
        hidden = wrapped(torch.tensor([IDS.ids]), output_hidden_states=True).hidden_states
    trace = run_model(f"{ROOT / 'llama'} --adapter {tmp_path}", IDS, "1")[0]
    np.testing.assert_allclose(trace["hidden"], hidden[1][0].numpy(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("tensors", "said", "message"),
    [
        (halves(Q, 30, 16), {}, "q_proj: B A is 30 × 16, the model's matrix 32 × 16"),
        (halves(Q, 32, 16, rank=2), {}, "q_proj: A has 2 rows, B 2 columns, its rank is 3"),
        (halves("layers.7.self_attn.q_proj", 32, 16), {}, "the model has no such matrix"),
        (dict([*halves(Q, 32, 16).items()][:1]), {}, "A without B"),
        ({}, {}, "it holds no tensors"),
        (halves(Q, 32, 16), {"peft_type": "LOHA"}, "peft_type 'LOHA' is not read; only LORA"),
        (halves(Q, 32, 16), {"use_dora": True}, "use_dora: columns have lengths of their own"),
        (halves(Q, 32, 16), {"init_lora_weights": "pissa"}, "'pissa' changes the model's own matrices"),
        (halves(Q, 32, 16), {"layer_replication": [[0, 1]]}, "'layer_replication' is '[[0, 1]]', which is"),
        (halves(Q, 32, 16), {"r": 0}, "r: '0', expected a whole number from 1"),
        (halves(Q, 32, 16), {"rank_pattern": {"(a+)+$": 3}}, "rank_pattern: "),
        (halves(Q, 32, 16), {"alpha_pattern": {"q_proj\\": 3}}, "alpha_pattern: "),
        (halves(Q, 32, 16), {"lora_alpha": "x"}, "lora_alpha: 'x', expected"),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused(tmp_path, tensors, said, message):
    adapter = write_adapter(tmp_path / "lora", tensors, **said)
    with pytest.raises(AttnError) as caught:
        open_model(f"{ROOT / 'llama'} --adapter {adapter}")
    assert message in str(caught.value)


def test_a_change_that_is_no_number_is_named(tmp_path):
    tensors = halves(Q, 32, 16)
    tensors[f"base_model.model.model.{Q}.lora_A.weight"][:] = np.nan
    adapter = write_adapter(tmp_path / "lora", tensors)
    with pytest.raises(AttnError, match=r"q_proj\.weight\[0, 0\] is nan"):
        run_model(f"{ROOT / 'llama'} --adapter {adapter}", IDS, "0")


def test_an_adapter_as_a_model_is_called_one(tmp_path):
    adapter = write_adapter(tmp_path / "lora", halves(Q, 32, 16))
    with pytest.raises(AttnError, match=f"changes a model: --model org/base --adapter {adapter}"):
        open_model(str(adapter))


def test_a_folder_that_is_no_adapter_is_refused(tmp_path):
    with pytest.raises(AttnError, match=r"--adapter .*: no adapter_config\.json in it"):
        open_adapter(str(ROOT / "llama"))
    with pytest.raises(AttnError, match="no such folder"):
        open_adapter(str(tmp_path / "nothing"))
    write_adapter(tmp_path / "lora", halves(Q, 32, 16))
    (tmp_path / "lora" / "adapter_model.safetensors").rename(tmp_path / "lora" / "adapter_model.bin")
    with pytest.raises(AttnError, match="is a pickle, which can run code"):
        open_adapter(str(tmp_path / "lora"))


def test_an_adapter_of_the_hub_is_found_where_it_was_left(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--org--lora"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc")
    (repository / "snapshots").mkdir()
    write_adapter(repository / "snapshots" / "abc", halves(Q, 32, 16))
    found = open_model(f"{ROOT / 'llama'} --adapter org/lora")
    assert found.checkpoint.tensors[f"{Q}.weight"].adapted
    with pytest.raises(AttnError, match="--adapter 'other': no such folder"):
        open_model(f"{ROOT / 'llama'} --adapter other")


def test_a_corpus_is_told_by_the_adapters_files_too(tmp_path):
    adapter = write_adapter(tmp_path / "lora", halves(Q, 32, 16))
    names = [path.name for path in files_of(f"{ROOT / 'llama'} --adapter {adapter}")]
    assert names == [
        "config.json",
        "model.safetensors",
        "adapter_config.json",
        "adapter_model.safetensors",
        "tokenizer.json",
    ]
