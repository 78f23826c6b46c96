"""Models that torch saved: pytorch_model.bin, its shards, and nanoGPT's checkpoint."""

import json
import shutil

import numpy as np
import pytest
from checkpoints import ROOT

import attnctl
from attnctl.models.tensors import Checkpoint

torch = pytest.importorskip("torch")
IDS = [3, 5, 9]


def state_of(name, dtype=torch.float32):
    own = Checkpoint(ROOT / name).tensors
    return {key: torch.tensor(np.array(tensor.load())).to(dtype) for key, tensor in own.items()}


def folder_of(tmp_path, name):
    folder = tmp_path / name
    shutil.copytree(ROOT / name, folder, copy_function=shutil.copyfile)
    (folder / "model.safetensors").unlink()
    return folder


@pytest.mark.parametrize("in_shards", [False, True])
def test_a_bin_file_is_the_same_model(tmp_path, in_shards):
    folder = folder_of(tmp_path, "llama")
    state = state_of("llama")
    if in_shards:
        names = sorted(state)
        parts = {
            "pytorch_model-00001-of-00002.bin": names[::2],
            "pytorch_model-00002-of-00002.bin": names[1::2],
        }
        for file, own in parts.items():
            torch.save({name: state[name] for name in own}, folder / file)
        weight_map = {name: file for file, own in parts.items() for name in own}
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
    else:
        torch.save(state, folder / "pytorch_model.bin")
    found = attnctl.run_model(str(folder), ids=IDS)
    right = attnctl.run_model(str(ROOT / "llama"), ids=IDS)
    for ours, theirs in zip(found, right, strict=True):
        np.testing.assert_array_equal(ours["residual"], theirs["residual"])


def test_bfloat16_of_torch_is_read(tmp_path):
    folder = folder_of(tmp_path, "llama")
    torch.save(state_of("llama", torch.bfloat16), folder / "pytorch_model.bin")
    (found,) = attnctl.run_model(str(folder), ids=IDS, layer=0)
    (right,) = attnctl.run_model(str(ROOT / "llama"), ids=IDS, layer=0)
    np.testing.assert_allclose(found["residual"], right["residual"], atol=0.2)


# --- nanoGPT, whose forward pass is written here as its model.py has it ---

SIZES = {"n_layer": 2, "n_head": 2, "n_embd": 8, "block_size": 16, "vocab_size": 20}


def drawn(*, bias):
    rng = np.random.RandomState(0)
    width = SIZES["n_embd"]
    shapes = {"transformer.wte.weight": (20, width), "transformer.wpe.weight": (16, width)}
    norms = ["transformer.ln_f"]
    for layer in range(2):
        start = f"transformer.h.{layer}"
        norms += [f"{start}.ln_1", f"{start}.ln_2"]
        shapes |= {
            f"{start}.attn.c_attn.weight": (3 * width, width),
            f"{start}.attn.c_proj.weight": (width, width),
            f"{start}.mlp.c_fc.weight": (4 * width, width),
            f"{start}.mlp.c_proj.weight": (width, 4 * width),
        }
    shapes |= {f"{norm}.weight": (width,) for norm in norms}
    if bias:
        shapes |= {
            name.replace(".weight", ".bias"): shape[:1] for name, shape in shapes.items() if ".h." in name
        }
        shapes["transformer.ln_f.bias"] = (width,)
    state = {name: torch.tensor(rng.randn(*shape), dtype=torch.float32) for name, shape in shapes.items()}
    state["lm_head.weight"] = state["transformer.wte.weight"]
    return state


def logits_of(state, ids):
    """nanoGPT's GPT.forward, with its own names."""
    F = torch.nn.functional

    def norm(x, name):
        return F.layer_norm(x, (8,), state[f"{name}.weight"], state.get(f"{name}.bias"), 1e-5)

    def linear(x, name):
        return F.linear(x, state[f"{name}.weight"], state.get(f"{name}.bias"))

    x = state["transformer.wte.weight"][ids] + state["transformer.wpe.weight"][: len(ids)]
    for layer in range(2):
        start = f"transformer.h.{layer}"
        q, k, v = linear(norm(x, f"{start}.ln_1"), f"{start}.attn.c_attn").split(8, dim=-1)
        heads = [each.view(len(ids), 2, 4).transpose(0, 1) for each in (q, k, v)]
        y = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(0, 1).reshape(len(ids), 8)
        x = x + linear(y, f"{start}.attn.c_proj")
        x = x + linear(F.gelu(linear(norm(x, f"{start}.ln_2"), f"{start}.mlp.c_fc")), f"{start}.mlp.c_proj")
    return F.linear(norm(x, "transformer.ln_f"), state["lm_head.weight"])


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_checkpoint_of_nanogpt_is_run(tmp_path, bias, compiled):
    state = drawn(bias=bias)
    prefix = "_orig_mod." if compiled else ""
    saved = {f"{prefix}{name}": tensor for name, tensor in state.items()}
    saved[f"{prefix}transformer.h.0.attn.bias"] = torch.ones(1, 1, 16, 16)
    path = tmp_path / "ckpt.pt"
    torch.save({"model": saved, "model_args": {**SIZES, "bias": bias, "dropout": 0.0}, "iter_num": 3}, path)
    (trace,) = attnctl.run_model(str(path), ids=IDS, next=20)
    labels = [int(label) for label in trace.header["next_tokens"]]
    np.testing.assert_allclose(trace["logits"], logits_of(state, IDS)[:, labels], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("saved", "why"),
    [
        ({"model": {}}, "no checkpoint of nanoGPT, which has `model` and `model_args`"),
        ([1, 2], "no checkpoint of nanoGPT"),
        (
            {"model": {}, "model_args": {**SIZES, "n_head": "2"}},
            "model_args.n_head is 2, expected a whole number",
        ),
        ({"model": {"x": 3}, "model_args": SIZES}, "ckpt.pt: x is no tensor"),
    ],
)
def test_other_files_of_torch_are_refused(tmp_path, saved, why):
    path = tmp_path / "ckpt.pt"
    torch.save(saved, path)
    with pytest.raises(attnctl.AttnError) as caught:
        attnctl.run_model(str(path), ids=IDS)
    assert why in str(caught.value)
