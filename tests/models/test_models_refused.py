"""Checkpoints that are truncated, hostile or of another kind: one clear line, nothing executed."""

import json
import pickle
import shutil
import struct

import numpy as np
import pytest
from checkpoints import ROOT
from ports import tensors

from attnctl.base.errors import AttnError
from attnctl.models.forward import require_rows
from attnctl.models.run import ModelInput, run_model
from attnctl.models.source import open_model
from attnctl.store.safetensors import write_tensors

IDS = ModelInput(ids=(3, 4, 5, 6))


@pytest.fixture
def llama(tmp_path):
    """A copy of a checkpoint, to be spoiled."""
    folder = tmp_path / "model"
    shutil.copytree(ROOT / "llama", folder, copy_function=shutil.copyfile)
    return folder


def refusal(folder, layers="1", source=IDS):
    """What is said of a model that is not run."""
    with pytest.raises(AttnError) as caught:
        run_model(str(folder), source, layers)
    return str(caught.value)


def with_config(folder, **changes):
    """The model with another config.json; None leaves a key out."""
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    return folder


def with_header(folder, change):
    """The model with another safetensors header."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])
    return folder


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "lama"}, "'lama' is not known; known are albert, "),
        ({"model_type": "kimi_linear"}, "it has layers of a gated delta rule, "),
        ({"model_type": "xlnet"}, "which no family here has; known are albert, "),
        ({"is_causal": False}, "'is_causal' is 'False', but llama reads no such key"),
        ({"model_type": None}, "no model_type"),
        ({"model_type": ["llama"]}, "not known"),
        ({"quantization_config": {"quant_method": "hqq"}}, "quantised (hqq)"),
        ({"model_type": "own", "auto_map": {"AutoModel": "x.y"}}, "code of its own"),
        ({"rope_parameters": {"rope_type": "spiral", "rope_theta": 1e4}}, "'spiral' is not understood"),
        ({"rope_parameters": {"rope_type": "linear"}}, "without factor"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "alpha": 9}}, "'alpha' is not"),
        ({"layer_types": ["full_attention"]}, "llama reads no such key"),
        ({"partial_rotary_factor": 0.5}, "llama reads no such key"),
        ({"partial_rotary_factor": 0.0}, "llama reads no such key"),
        ({"hidden_act": "mystery"}, "'mystery' is not known"),
        ({"num_hidden_layers": 10**9}, "10000 are the most"),
        ({"num_hidden_layers": 0}, "expected a whole number from 1"),
        ({"num_hidden_layers": "2"}, "expected a whole number from 1"),
        ({"num_attention_heads": 10**12}, "expected a whole number from 1"),
        ({"num_key_value_heads": 3}, "num_key_value_heads: 3 do not divide num_attention_heads, 4"),
        ({"hidden_size": 2**20}, "but config.json asks for"),
        ({"num_attention_heads": 2}, "but config.json asks for"),
        ({"head_dim": 10}, "but config.json asks for"),
        ({"head_dim": 7}, "head_dim: 7 columns of a head do not turn in pairs"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps: 'small', expected a number from 0 to 1"),
        ({"rms_norm_eps": -1}, "rms_norm_eps: '-1', expected a number from 0 to 1"),
        ({"rms_norm_eps": 2.0}, "rms_norm_eps: '2.0', expected a number from 0 to 1"),
        ({"attention_bias": "no"}, "expected true or false"),
        (
            {"rope_parameters": {"rope_type": "yarn", "factor": "x"}},
            "factor: 'x', expected a number above 0",
        ),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": -1}}, "rope_theta: '-1', expected"),
        ({"attention_bias": False}, "config.json says that there is none"),
        ({"num_hidden_layers": 9}, "num_hidden_layers is 9, but there are tensors of 2"),
        ({"num_hidden_layers": 1}, "num_hidden_layers is 1, but there are tensors of more than 1"),
        ({"vocab_size": 30}, "embed_tokens.weight is 32 × 16, but config.json asks for 30 × 16"),
    ],
)
def test_a_config_that_is_not_understood(llama, changes, said):
    assert said in refusal(with_config(llama, **changes))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda h: h.pop("layers.0.self_attn.q_proj.weight"), "begins at byte"),
        (lambda h: h["norm.weight"].update(shape=[8, 2]), "norm.weight is 8 × 2, but"),
        (lambda h: h["norm.weight"].update(shape=[2**40]), "disagree"),
        (lambda h: h["norm.weight"].update(dtype="I32"), "holds I32, and no scales that its config.json"),
        (lambda h: h["norm.weight"].update(dtype="F8_E5M2"), "F8_E5M2; quantised numbers are not read"),
        (lambda h: h["norm.weight"].update(data_offsets=[0, 64]), "begins at byte"),
        (
            lambda h: h.update({"layers.0.self_attn.q_norm.weight": h.pop("norm.weight")}),
            "llama as config.json has it has no such tensor",
        ),
        (
            lambda h: h.update(
                {"layers.1.self_attn.q_pro.weight": h.pop("layers.1.self_attn.q_proj.weight")}
            ),
            "no such tensor",
        ),
        (
            lambda h: h.update({"other.0.q.weight": h.pop("layers.0.self_attn.q_proj.weight")}),
            "no tensor ends in layers.0.self_attn.q_proj.weight",
        ),
    ],
)
def test_tensors_that_do_not_fit(llama, change, said):
    folder = with_header(llama, change)
    late = "norm.weight is" in said or "no scales" in said
    found = final(folder) if late else refusal(folder)
    assert said in found


def final(folder):
    """What is said once the final norm is read."""
    from attnctl.models.forward import final_norm
    from attnctl.models.source import open_model

    model = open_model(str(folder))
    with pytest.raises(AttnError) as caught:
        final_norm(model, __import__("numpy").zeros((2, 16), "float32"))
    return str(caught.value)


def with_number(folder, name, at, value):
    """The model with another number at an index of a tensor of float32."""
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    entry = json.loads(data[8 : 8 + length])[name]
    place = 8 + length + entry["data_offsets"][0] + 4 * int(np.ravel_multi_index(at, entry["shape"]))
    data[place : place + 4] = struct.pack("<f", value)
    path.write_bytes(data)
    return folder


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("layers.0.self_attn.q_proj.weight", (3, 7)),
        ("layers.0.self_attn.k_proj.bias", (2,)),
        ("layers.0.post_attention_layernorm.weight", (15,)),
        ("layers.0.mlp.down_proj.weight", (0, 23)),
        ("embed_tokens.weight", (5, 1)),
    ],
)
def test_weights_that_are_no_numbers_are_named(llama, name, at, value):
    assert f"{name}{[*at]} is {value}; weights are finite" in refusal(with_number(llama, name, at, value))


def test_an_expert_is_named_by_its_number(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(ROOT / "gpt-oss", folder, copy_function=shutil.copyfile)
    with_number(folder, "model.layers.0.mlp.experts.down_proj", (3, 0, 1), np.nan)
    assert "model.layers.0.mlp.experts.down_proj[3, 0, 1] is nan" in refusal(folder)


def test_only_the_numbers_that_are_used_are_looked_at(llama):
    with_number(llama, "embed_tokens.weight", (30, 1), np.nan)
    with_number(llama, "layers.1.mlp.up_proj.weight", (0, 0), np.nan)
    run_model(str(llama), IDS, "0")
    assert "layers.1.mlp.up_proj.weight[0, 0]" in refusal_of_states(llama)


def refusal_of_states(folder):
    """What is said when every layer is run to its end."""
    from attnctl.models.forward import embed_ids, states
    from attnctl.models.source import open_model

    model = open_model(str(folder))
    with pytest.raises(AttnError) as caught:
        list(states(model, embed_ids(model, IDS.ids)))
    return str(caught.value)


def test_what_a_layer_costs_takes_no_numbers(llama):
    from attnctl.inputs.config.settings import Settings
    from attnctl.models.run import plans
    from attnctl.verbs.models.about import describe_checkpoint

    with_number(llama, "layers.0.self_attn.q_proj.weight", (0, 0), np.nan)
    assert describe_checkpoint(str(llama)).parameters
    assert plans(str(llama), IDS, "0", Settings(dtype="float32"))


def test_large_weights_are_numbers(llama):
    """Their squares are not."""
    run_model(str(with_number(llama, "layers.0.self_attn.v_proj.weight", (0, 0), 3e38)), IDS, "0")


def test_a_header_that_is_longer_than_its_file(llama):
    path = llama / "model.safetensors"
    path.write_bytes(struct.pack("<Q", 2**62) + path.read_bytes()[8:])
    assert "a safetensors header of" in refusal(llama)


@pytest.mark.parametrize("length", [0, 5, 100, 5000])
def test_a_file_that_is_cut_off(llama, length):
    path = llama / "model.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    assert len(refusal(llama).splitlines()) == 1


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was executed",))


def test_a_pickle_is_not_opened(llama, monkeypatch):
    (llama / "model.safetensors").unlink()
    (llama / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
    assert refusal(llama)  # by torch, where that is installed
    monkeypatch.setattr("attnctl.models.tensors.find_spec", lambda name: None)
    assert "is a pickle" in refusal(llama)
    assert "pip install torch" in refusal(llama)


@pytest.mark.parametrize("name", ["../llama/model.safetensors", "/etc/passwd", "a/b", "", "x\0y"])
def test_an_index_names_files_beside_it_alone(llama, name):
    (llama / "model.safetensors").unlink()
    index = {"weight_map": {"norm.weight": name}}
    (llama / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "is not the name of a file beside config.json" in refusal(llama)


@pytest.mark.parametrize("index", [{}, {"weight_map": [1]}, {"weight_map": {"a": 1}}])
def test_an_index_that_is_none(llama, index):
    (llama / "model.safetensors").unlink()
    (llama / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "weight_map" in refusal(llama)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_link_out_of_the_folder_is_not_followed(llama, tmp_path, name):
    shutil.move(llama / name, tmp_path / name)
    (llama / name).symlink_to(tmp_path / name)
    assert "a link that leads out of" in refusal(llama)


@pytest.mark.parametrize(
    ("text", "said"),
    [("[1]", "config.json"), ("{", "config.json"), ("", "config.json"), ('{"a": ' * 2000, "config.json")],
)
def test_a_config_that_is_no_object(llama, text, said):
    (llama / "config.json").write_text(text)
    assert said in refusal(llama)


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ("2", "no layer 2; there are 2"),
        ("-3", "no layer -3"),
        ("x", "write 3, 0,2, -1 or all"),
        ("0,decoder.1", "layers of several parts"),
        ("decoder.0", "has no part 'decoder'"),
        ("cross.0", "has no part 'decoder'"),
        ("", "write 3"),
        ("9" * 12, "write 3"),
    ],
)
def test_layers_that_are_not_there(llama, layers, said):
    assert said in refusal(llama, layers)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (ModelInput(ids=(3, 32)), "no token 32; there are 32"),
        (ModelInput(ids=()), "ids: none; give one or more"),
        (ModelInput(ids=(3, "x")), "ids: 'x' is no whole number"),
        (ModelInput(), "SENTENCE: missing"),
        (ModelInput("hello"), "no tokenizer.json"),
        (ModelInput(ids=(3,), context_ids=(4,)), "only a decoder"),
    ],
)
def test_input_that_a_model_does_not_take(llama, source, said):
    assert said in refusal(llama, "0", source)


def test_an_image_model_takes_no_tokens():
    assert "takes no tokens" in refusal(ROOT / "vit")


def test_layers_that_share_their_tensors_are_counted_by_group(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(ROOT / "albert", folder, copy_function=shutil.copyfile)
    assert run_model(str(folder), IDS, "2")
    assert "num_hidden_groups is 2, but there are tensors of 1" in refusal(
        with_config(folder, num_hidden_groups=2)
    )


def test_layers_that_guess_further_ahead_may_follow(tmp_path):
    """DeepSeek-V3 has one, which transformers leaves aside too."""
    folder = tmp_path / "model"
    shutil.copytree(ROOT / "deepseek-v3", folder, copy_function=shutil.copyfile)
    assert run_model(str(with_config(folder, num_hidden_layers=1)), IDS, "0")
    assert "num_hidden_layers is 1" in refusal(with_config(folder, num_nextn_predict_layers=0), "0")


@pytest.mark.parametrize("name", ["no/such/model/here", "./nothing", "/nothing", "a\0b"])
def test_a_model_that_is_not_there(name):
    assert refusal(name)


def test_a_folder_without_a_config(tmp_path):
    assert "no config.json in it; a model is what save_pretrained writes" in refusal(tmp_path)


def test_a_folder_above_models_names_them(llama):
    assert f"no config.json in it; give {llama}" in refusal(llama.parent)


def test_a_folder_with_a_gguf_file_names_it(tmp_path):
    path = tmp_path / "llama.gguf"
    path.write_bytes(b"GGUF")
    assert f"no config.json in it; give {path}" in refusal(tmp_path)


def test_a_file_that_is_called_gguf_may_be_none(tmp_path):
    path = tmp_path / "llama.gguf"
    path.write_bytes(b"GGML")
    assert "not a GGUF file: it does not begin with GGUF" in refusal(path)


def test_a_file_of_a_model_is_not_the_model(llama):
    assert "a file; give the folder that it is in" in refusal(llama / "model.safetensors")


def test_a_table_of_distances_for_each_layer_is_not_that_of_t5(tmp_path):
    """A config.json of umt5 with another model_type."""
    folder = tmp_path / "model"
    shutil.copytree(ROOT / "t5-gated", folder, copy_function=shutil.copyfile)
    name = "layer.0.SelfAttention.relative_attention_bias.weight"
    arrays = tensors("t5-gated")
    table = arrays[f"encoder.block.0.{name}"]
    with (folder / "model.safetensors").open("wb") as stream:
        write_tensors({**arrays, f"encoder.block.1.{name}": table}, stream, {})
    assert f"encoder.block.1.{name}: t5 as config.json has it has no such tensor" in refusal(folder)


def test_what_does_not_fit_memory_is_refused(llama):
    from attnctl.inputs.config.settings import Settings

    with pytest.raises(AttnError, match="of memory, more than"):
        run_model(str(llama), IDS, "1", Settings(dtype="float32", max_memory=100))


def test_a_sequence_that_does_not_fit_is_refused_before_anything_is_made():
    model = open_model(str(ROOT / "gpt-oss"))
    # Six rows of width 16, two of the network's 24, four of the 4 heads' 6 columns, each number 4 bytes.
    need = 4 * (6 * 16 + 2 * 24 + 4 * 4 * 6)
    model.max_memory = 1000 * need
    require_rows(model, 1000)
    model.max_memory -= 1
    with pytest.raises(AttnError, match=r"^1000 tokens through gpt_oss \(937\.5 KiB\)"):
        require_rows(model, 1000)


def cut_in_shards(folder, count, missing=()):
    """The model in so many files, without an index."""
    arrays = tensors("llama")
    (folder / "model.safetensors").unlink()
    for number in range(count):
        part = {name: arrays[name] for name in sorted(arrays)[number::count]}
        if number + 1 not in missing:
            with (folder / f"model-{number + 1:05}-of-{count:05}.safetensors").open("wb") as stream:
                write_tensors(part, stream, {})


def test_shards_without_an_index_are_read(llama):
    whole = run_model(str(llama), IDS, "1")[0]
    cut_in_shards(llama, 3)
    np.testing.assert_array_equal(run_model(str(llama), IDS, "1")[0]["output"], whole["output"])


@pytest.mark.parametrize(("missing", "named"), [([2], "00002"), ([1, 3], "00001"), ([3], "00003")])
def test_a_shard_that_is_missing_is_named(llama, missing, named):
    cut_in_shards(llama, 3, missing)
    assert f"model-{named}-of-00003.safetensors is missing; there are" in refusal(llama)


def test_shards_of_two_models_are_refused(llama):
    cut_in_shards(llama, 2)
    shutil.copyfile(llama / "model-00001-of-00002.safetensors", llama / "model-00001-of-00003.safetensors")
    assert "shards of 2 or 3 files" in refusal(llama)


@pytest.mark.parametrize("with_config", [True, False])
def test_a_file_with_mistrals_own_names_is_called_that(llama, with_config):
    (llama / "model.safetensors").rename(llama / "consolidated.safetensors")
    if not with_config:
        (llama / "config.json").unlink()
    assert "Mistral's own names" in refusal(llama)


def test_tensors_under_another_name_are_named(llama):
    (llama / "model.safetensors").rename(llama / "weights.safetensors")
    assert "there is weights.safetensors, which another program wrote" in refusal(llama)
