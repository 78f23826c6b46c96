"""GGUF: a file of llama.cpp computes what transformers does from the same weights; lies are refused."""

import json
import shutil
import struct
import time
import tracemalloc
from contextlib import suppress

import numpy as np
import pytest
from checkpoints import ROOT, expected_of, folder_of
from ggufs import OF_ITS_OWN, checkpoint, gguf_of, of_gpt_oss, permute, sizes_of, tensors_of, write_gguf
from test_families import parts_compared

from attnctl.base.errors import AttnError
from attnctl.inputs.config.settings import Settings
from attnctl.models.forward import embed_ids, states
from attnctl.models.gguf import KINDS
from attnctl.models.next import begin_pass, logits_of
from attnctl.models.rope import Rope, llama3
from attnctl.models.run import ModelInput, run_model
from attnctl.models.source import find_ollama, open_model
from attnctl.store.safetensors import write_tensors

gguf = pytest.importorskip("gguf")

IDS = ModelInput(ids=(3, 5, 9, 4, 17))

GRANITE = {"attention.scale": 0.3, "embedding_scale": 2.5, "residual_scale": 0.6, "logit_scale": 1.0}


@pytest.mark.parametrize(
    ("name", "arch", "said"),
    [
        ("llama", "llama", {}),
        ("llama-linear", "llama", {}),
        ("mixtral", "mixtral", {"expert_count": 4, "expert_used_count": 2}),
        ("qwen3", "qwen3", {}),
        ("gemma", "gemma", {}),
        ("granite", "granite", GRANITE),
        ("phi3", "phi3", {"attention.sliding_window": 4, "rope.dimension_count": 4}),
    ],
)
def test_every_layer_is_that_of_transformers(tmp_path, name, arch, said):
    """The frozen numbers of transformers, from a file in float32."""
    config, arrays = checkpoint_of(name, tmp_path)
    written = "llama" if arch == "mixtral" else arch
    path = write_gguf(
        tmp_path / "x.gguf", written, {**sizes_of(config), **said}, tensors_of(arch, config, arrays)
    )
    assert parts_compared(path, expected_of(name), "") >= 3


def checkpoint_of(name, scratch):
    """A checkpoint's config and arrays, those of the case whose tensors it has."""
    folder = folder_of(name, scratch)
    config = json.loads((folder / "config.json").read_text())
    own = ROOT / name / "of"
    _, arrays = checkpoint(own.read_text() if own.exists() else name)
    return config, arrays


def logits(name):
    prompt = begin_pass(str(name), IDS, Settings(dtype="float32"))
    return logits_of(prompt, prompt.last())


def same_models(path, folder):
    """Hold each layer of a GGUF file and its logits to those of a folder."""
    for found, right in zip(
        run_model(str(path), IDS, "all"), run_model(str(folder), IDS, "all"), strict=True
    ):
        for step in ("hidden", "Q", "K", "attention_weights", "output"):
            np.testing.assert_allclose(found[step], right[step], rtol=1e-5, atol=1e-5, err_msg=step)
    np.testing.assert_allclose(logits(path), logits(folder), rtol=1e-5, atol=1e-5)


def with_config(folder, name, **changes):
    """A checkpoint whose config.json says what llama.cpp takes for granted."""
    shutil.copytree(ROOT / name, folder, copy_function=shutil.copyfile)
    config = {**json.loads((folder / "config.json").read_text()), **changes}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


THETAS = {"full_attention": {"rope_type": "default", "rope_theta": 1e6}} | {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}
}


@pytest.mark.parametrize(
    ("name", "arch", "changes", "said"),
    [
        ("mistral", "llama", {"sliding_window": None}, {}),
        ("qwen2", "qwen2", {"use_sliding_window": False, "layer_types": None}, {}),
        (
            "gemma2",
            "gemma2",
            {"query_pre_attn_scalar": 6, "sliding_window": 2},
            {"attention.sliding_window": 2, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 30.0},
        ),
        (
            "gemma3",
            "gemma3",
            {"query_pre_attn_scalar": 6, "rope_parameters": THETAS, "layer_types": None},
            {"attention.sliding_window": 3, "rope.freq_base": 1e6},
        ),
        ("starcoder2", "starcoder2", {"sliding_window": None}, {"attention.layer_norm_epsilon": 1e-5}),
    ],
)
def test_every_architecture_is_the_model_it_was_made_from(tmp_path, name, arch, changes, said):
    folder = with_config(tmp_path / "model", name, **changes)
    path = gguf_of(name, arch, tmp_path / "x.gguf", **said)
    model = open_model(str(path))
    if "lm_head" in model.description.head["unembed"] and name != "qwen2":
        same_models(path, folder)
    found, right = (
        list(states(each, embed_ids(each, IDS.ids))) for each in (model, open_model(str(folder)))
    )
    np.testing.assert_allclose(found[-1][1], right[-1][1], rtol=1e-5, atol=1e-5)


def test_experts_of_qwen_stand_each_behind_the_other(tmp_path):
    """The layers with experts of the tiny checkpoint, whose first has none: those of llama.cpp all do."""
    config, arrays = checkpoint("qwen3-moe")
    kept = {}
    for name, array in arrays.items():
        if ".layers.0." not in name:
            kept[name.replace("layers.1.", "layers.0.").replace("layers.2.", "layers.1.")] = array
    own = {**config, "num_hidden_layers": 2, "mlp_only_layers": []}
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(own))
    with (folder / "model.safetensors").open("wb") as stream:
        write_tensors(kept, stream, {})
    said = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 8}
    path = write_gguf(
        tmp_path / "x.gguf", "qwen3moe", {**sizes_of(own), **said}, tensors_of("qwen3moe", own, kept)
    )
    same_models(path, folder)


def test_experts_of_gpt_oss_are_joined_as_its_family_has_them(tmp_path):
    """Yarn's edges are those that llama.cpp takes for granted."""
    config, arrays = checkpoint("gpt-oss")
    rope = {**config["rope_parameters"], "beta_fast": 32.0}
    folder = with_config(tmp_path / "model", "gpt-oss", rope_parameters=rope)
    plain = {name: array for name, array in arrays.items() if not any(each in name for each in OF_ITS_OWN)}
    said = sizes_of(config) | {"attention.sliding_window": 3, "expert_count": 4, "expert_used_count": 2}
    said |= {"expert_feed_forward_length": 24, "rope.scaling.type": "yarn", "rope.scaling.factor": 8.0}
    said |= {"rope.scaling.original_context_length": 8}
    tensors = {**tensors_of("gpt-oss", config, plain), **of_gpt_oss(arrays)}
    path = write_gguf(tmp_path / "x.gguf", "gpt-oss", said, tensors)
    same_models(path, folder)


def test_the_factors_of_llama_3_are_a_tensor(tmp_path):
    """llama.cpp's converter writes what each frequency is divided by."""
    config, arrays = checkpoint_of("llama-llama3", tmp_path)
    rope = config["rope_parameters"]
    told = Rope("llama3", rope["rope_theta"], 8, longest=64, parameters=rope)
    plain = rope["rope_theta"] ** -(np.arange(0, 8, 2) / 8)
    tensors = tensors_of("llama", config, arrays)
    tensors["rope_freqs.weight"] = np.float32(plain / llama3(told, 7)[0])
    path = write_gguf(tmp_path / "x.gguf", "llama", sizes_of(config), tensors)
    assert parts_compared(path, expected_of("llama-llama3"), "") >= 3


def test_rows_are_put_back():
    rows = np.arange(16)
    assert permute(rows, 2).tolist() == [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]


# --- quantised tensors ---

WIDE = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4}
WIDE |= {"num_key_value_heads": 2, "head_dim": 64, "vocab_size": 32, "max_position_embeddings": 64}
WIDE |= {"model_type": "llama", "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True}

SCALES = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
SCALES |= {kind.name: (0,) for kind in KINDS.values() if kind.name.startswith("IQ")}
"""Where the scales of a block are, in half precision."""


def packed(kind, rows, columns, stream):
    """Random blocks, in bytes: drawn numbers quantised, or drawn bytes with scales that are small."""
    if kind not in SCALES:
        numbers = stream.standard_normal((rows, columns)).astype(np.float32) * 0.06
        return gguf.quants.quantize(numbers, gguf.GGMLQuantizationType[kind])
    each = next(each for each in KINDS.values() if each.name == kind)
    data = stream.randint(0, 256, (rows, columns // each.numbers, each.bytes)).astype(np.uint8)
    for place in SCALES[kind]:
        scale = np.float16(stream.uniform(1e-4, 1e-3, data.shape[:2]))
        data[..., place : place + 2] = scale[..., None].view(np.uint8)
    return data.reshape(rows, -1)


def wide_model(kind, scratch):
    """A llama whose matrices are in this type: its GGUF file, and a folder of what they stand for."""
    stream = np.random.RandomState(7)
    tensors, types, plain = {}, {}, {}

    def matrix(theirs, ours, rows, columns, heads=0):
        data = packed(kind, rows, columns, stream)
        numbers = gguf.quants.dequantize(data, gguf.GGMLQuantizationType[kind]).reshape(rows, columns)
        tensors[theirs], types[theirs] = data, kind
        if heads:  # undone in the order of llama.cpp's own permutation
            halves = numbers.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2)
            numbers = halves.reshape(rows, columns)
        plain[ours] = np.float32(numbers)

    def norm(theirs, ours):
        tensors[theirs] = plain[ours] = 1 + 0.1 * stream.standard_normal(256).astype(np.float32)

    matrix("token_embd.weight", "model.embed_tokens.weight", 32, 256)
    norm("output_norm.weight", "model.norm.weight")
    for layer in range(2):
        theirs, ours = f"blk.{layer}.", f"model.layers.{layer}."
        norm(f"{theirs}attn_norm.weight", f"{ours}input_layernorm.weight")
        norm(f"{theirs}ffn_norm.weight", f"{ours}post_attention_layernorm.weight")
        matrix(f"{theirs}attn_q.weight", f"{ours}self_attn.q_proj.weight", 256, 256, 4)
        matrix(f"{theirs}attn_k.weight", f"{ours}self_attn.k_proj.weight", 128, 256, 2)
        matrix(f"{theirs}attn_v.weight", f"{ours}self_attn.v_proj.weight", 128, 256)
        matrix(f"{theirs}attn_output.weight", f"{ours}self_attn.o_proj.weight", 256, 256)
        matrix(f"{theirs}ffn_gate.weight", f"{ours}mlp.gate_proj.weight", 512, 256)
        matrix(f"{theirs}ffn_up.weight", f"{ours}mlp.up_proj.weight", 512, 256)
        matrix(f"{theirs}ffn_down.weight", f"{ours}mlp.down_proj.weight", 256, 512)
    path = write_gguf(scratch / f"{kind}.gguf", "llama", sizes_of(WIDE), tensors, types)
    folder = scratch / "plain"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(WIDE))
    with (folder / "model.safetensors").open("wb") as out:
        write_tensors(plain, out, {})
    return path, folder


def test_types_have_the_sizes_that_the_package_gives_them():
    for number, kind in KINDS.items():
        theirs = gguf.GGMLQuantizationType(number)
        assert (theirs.name, gguf.GGML_QUANT_SIZES[theirs]) == (kind.name, (kind.numbers, kind.bytes))


QUANTISED = [kind.name for kind in KINDS.values() if kind.numbers > 1 or kind.name == "BF16"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", QUANTISED)
def test_quantised_weights_are_the_numbers_they_stand_for(tmp_path, kind):
    path, folder = wide_model(kind, tmp_path)
    same_models(path, folder)
    checkpoint = open_model(str(path)).checkpoint
    name = "model.layers.0.self_attn.q_proj.weight"
    whole = checkpoint.read(name, (256, 256), "float32")
    for part in ((slice(3, 9), slice(None)), (slice(None), slice(5, 60)), np.array([7, 0, 7]), 3):
        np.testing.assert_array_equal(checkpoint.tensors[name].load(part), whole[part])


@pytest.mark.slow
def test_transformers_says_the_same_of_the_same_weights(tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    path, folder = wide_model("Q4_K", tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        right = model(torch.tensor([IDS.ids])).logits[0].numpy()
    np.testing.assert_allclose(logits(path), right, rtol=1e-4, atol=1e-4)


# --- files that lie ---


def number(value, kind="Q"):
    return struct.pack(f"<{kind}", value)


def text(value):
    return number(len(value)) + value


ARCH = text(b"general.architecture") + number(8, "I") + text(b"llama")


def head(tensors=0, keys=0, version=3):
    return b"GGUF" + number(version, "I") + number(tensors) + number(keys)


def tensor(name=b"a", sizes=(32,), kind=0, offset=0):
    axes = number(len(sizes), "I") + b"".join(map(number, sizes))
    return text(name) + axes + number(kind, "I") + number(offset)


def list_of(kind, count, rest=b""):
    return text(b"k") + number(9, "I") + number(kind, "I") + number(count) + rest


LIES = {
    "nothing but a name": (b"GGUF", "past the end of the file"),
    "another version": (head(version=1), "GGUF version 1; versions 2 and 3"),
    "big-endian": (head(version=3 << 24), "its numbers are big-endian"),
    "so many keys": (head(keys=2**63), "9223372036854775808 keys; 4096 are the most"),
    "more keys than there is room for": (head(keys=100) + ARCH, "100 keys; there is room for 3"),
    "so many tensors": (head(tensors=2**40), "tensors; 65536 are the most"),
    "a long name": (head(keys=1) + number(2**62) + bytes(20), "a text of"),
    "a huge text": (head(keys=1) + text(b"k") + number(8, "I") + number(2**40), "a text of 1.0 TiB"),
    "a huge list": (head(keys=1) + list_of(4, 2**60), "numbers; "),
    "a huge list of texts": (head(keys=1) + list_of(8, 2**50), "texts; "),
    "a list of texts that ends early": (
        head(keys=1) + list_of(8, 2, number(0) + number(2**60)),
        "past the end",
    ),
    "lists of lists": (head(keys=1) + list_of(9, 1, list_of(9, 1)), "a list of type 9"),
    "an unknown type": (head(keys=1) + text(b"k") + number(77, "I") + bytes(9), "a value of type 77"),
    "a key twice": (head(keys=2) + ARCH + ARCH, "'general.architecture' is there twice"),
    "no axes": (head(1, 1) + ARCH + tensor(sizes=()) + bytes(32), "'a' has 0 axes"),
    "many axes": (head(1, 1) + ARCH + tensor(sizes=(1,) * 9), "'a' has 9 axes"),
    "a huge tensor": (head(1, 1) + ARCH + tensor(sizes=(2**40, 2**40)), "is too large"),
    "a tensor past the end": (head(1, 1) + ARCH + tensor(sizes=(2**20,)), "the file is cut off"),
    "an offset past the end": (
        head(1, 1) + ARCH + tensor(offset=2**62) + bytes(200),
        "the file is cut off",
    ),
    "a tensor twice": (head(2, 1) + ARCH + tensor() + tensor(), "the tensor 'a' is there twice"),
    "tensors over each other": (
        head(2, 1) + ARCH + tensor() + tensor(b"b", offset=64) + bytes(300),
        "'b' begins within 'a'",
    ),
    "an unknown quantisation": (head(1, 1) + ARCH + tensor(kind=35) + bytes(300), "is in TQ2_0, which"),
    "rows that do not fill a block": (
        head(1, 1) + ARCH + tensor(sizes=(31, 2), kind=8),
        "rows of 31, which Q8_0",
    ),
    "an alignment of nothing": (
        head(0, 1) + text(b"general.alignment") + number(4, "I") + number(0, "I"),
        "general.alignment: '0'",
    ),
    "no text": (head(0, 1) + text(b"\xff\xfe") + number(4, "I") + number(1, "I"), "is not UTF-8"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_file_that_lies_is_refused_at_once(tmp_path, name):
    data, message = LIES[name]
    path = tmp_path / "lie.gguf"
    path.write_bytes(data)
    tracemalloc.start()
    began = time.monotonic()
    try:
        with pytest.raises(AttnError) as caught:
            open_model(str(path))
    finally:
        taken, (_, most) = time.monotonic() - began, tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert taken < 1
    assert most < 10e6


@pytest.mark.parametrize("length", [3, 4, 30, 43, 400, 3000])
def test_a_file_that_is_cut_off(tmp_path, length):
    path = gguf_of("llama", "llama", tmp_path / "x.gguf")
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(AttnError) as caught:
        run_model(str(path), IDS, "0")
    assert len(str(caught.value).splitlines()) == 1


def test_any_byte_of_a_header_may_be_another(tmp_path):
    """One byte after the other is changed: the file is read, or refused in words."""
    path = gguf_of("llama", "llama", tmp_path / "x.gguf")
    data = bytearray(path.read_bytes())
    stream = np.random.RandomState(0)
    for place in stream.randint(0, 1600, 150):
        kept = data[place]
        data[place] = stream.randint(256)
        path.write_bytes(data)
        with suppress(AttnError):
            open_model(str(path))
        data[place] = kept


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"expert_weights_scale": 2.0}, "'expert_weights_scale' is '2.0', but llama reads no such key"),
        ({"attention.key_length": 4}, "attention.value_length: 8, but a head has 4 columns"),
        ({"rope.scaling.type": "longrope"}, "'longrope'; only none, linear and yarn are read"),
        ({"attention.head_count": 0}, "attention.head_count: '0', expected a whole number from 1"),
        ({"attention.head_count": 3}, "rows are no pairs of 3 heads"),
        ({"block_count": 5}, "num_hidden_layers is 5, but there are tensors of 2"),
        ({"embedding_length": 32}, "expected"),
    ],
)
def test_metadata_that_is_not_understood(tmp_path, said, message):
    path = gguf_of("llama", "llama", tmp_path / "x.gguf", **said)
    with pytest.raises(AttnError) as caught:
        run_model(str(path), IDS, "0")
    assert message in str(caught.value) or (message == "expected" and "asks for" in str(caught.value))


def test_another_architecture_is_named(tmp_path):
    path = gguf_of("llama", "llama", tmp_path / "x.gguf")
    path.write_bytes(path.read_bytes().replace(text(b"llama"), text(b"mamba"), 1))
    with pytest.raises(AttnError, match=r"architecture 'mamba' is not read; read are gemma, gemma2"):
        open_model(str(path))


def test_a_tensor_that_no_family_has_is_refused(tmp_path):
    config, arrays = checkpoint("llama")
    tensors = {**tensors_of("llama", config, arrays), "blk.0.attn_sinks.weight": np.zeros(4, np.float32)}
    path = write_gguf(tmp_path / "x.gguf", "llama", sizes_of(config), tensors)
    with pytest.raises(AttnError, match=r"the tensor 'blk\.0\.attn_sinks\.weight' is none of llama"):
        open_model(str(path))


# --- Ollama's store ---


def store_of(tmp_path, monkeypatch, kinds=("model",)):
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path))
    digest = "sha256:" + "ab" * 32
    layers = [{"mediaType": f"application/vnd.ollama.image.{kind}", "digest": digest} for kind in kinds]
    manifest = tmp_path / "manifests" / "registry.ollama.ai" / "library" / "tiny" / "latest"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"layers": layers}))
    (tmp_path / "blobs").mkdir()
    gguf_of("llama", "llama", tmp_path / "blobs" / ("sha256-" + "ab" * 32))


@pytest.mark.parametrize("name", ["ollama:tiny", "ollama:tiny:latest", "ollama:library/tiny"])
def test_a_model_of_ollama_is_found_by_its_name(tmp_path, monkeypatch, name):
    store_of(tmp_path, monkeypatch)
    trace = run_model(name, IDS, "0")[0]
    assert trace.header["model"] == name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("other", "not in .*; there is ollama:tiny"),
        ("tiny:7b", "there is ollama:tiny:latest"),
        ("../../etc/passwd", "expected NAME, NAME:TAG or OWNER/NAME:TAG"),
        ("", "expected NAME"),
    ],
)
def test_a_model_that_ollama_has_not(tmp_path, monkeypatch, name, message):
    store_of(tmp_path, monkeypatch)
    with pytest.raises(AttnError, match=message):
        find_ollama(name)


def test_an_adapter_of_ollama_is_said_to_be_there(tmp_path, monkeypatch):
    store_of(tmp_path, monkeypatch, ("model", "adapter"))
    with pytest.raises(AttnError, match="it has an adapter in GGUF"):
        find_ollama("tiny")
