"""One layer of a random Llama of 600 M parameters in bfloat16, against torch and transformers, 128 tokens.

python tests/benchmarks/layer.py [CHECKOUT …]: whole processes in turn, the least of ROUNDS (5) of time
by the clock, of processor time and of peak memory. Another CHECKOUT of attnctl is measured beside this
one. The checkpoint, of 1.2 GB, is written once into a temporary folder.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from bench import processor

WIDTH, INNER, LAYERS, HEADS, KV_HEADS, VOCAB = 1536, 4096, 20, 24, 8, 32000
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "vocab_size": VOCAB,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
}
KEYS = WIDTH // HEADS * KV_HEADS
LAYER = {
    "input_layernorm": (WIDTH,),
    "post_attention_layernorm": (WIDTH,),
    "self_attn.q_proj": (WIDTH, WIDTH),
    "self_attn.k_proj": (KEYS, WIDTH),
    "self_attn.v_proj": (KEYS, WIDTH),
    "self_attn.o_proj": (WIDTH, WIDTH),
    "mlp.gate_proj": (INNER, WIDTH),
    "mlp.up_proj": (INNER, WIDTH),
    "mlp.down_proj": (WIDTH, INNER),
}
TENSORS = {
    "model.embed_tokens.weight": (VOCAB, WIDTH),
    "lm_head.weight": (VOCAB, WIDTH),
    "model.norm.weight": (WIDTH,),
    **{
        f"model.layers.{layer}.{name}.weight": shape
        for layer in range(LAYERS)
        for name, shape in LAYER.items()
    },
}
TORCH = """
import sys, torch
from transformers import AutoModel
model = AutoModel.from_pretrained(sys.argv[1], dtype=torch.bfloat16, attn_implementation="eager").eval()
with torch.inference_mode():
    found = model(torch.arange(1, 129)[None], output_attentions=True)
print(found.attentions[int(sys.argv[2])].float().numpy().sum())
"""


def write_checkpoint(folder):
    """Drawn weights, rounded towards zero to bfloat16."""
    (folder / "config.json").write_text(json.dumps(CONFIG))
    header, at = {}, 0
    for name, shape in TENSORS.items():
        end = at + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    draw = np.random.default_rng(0)
    with (folder / "model.safetensors").open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for shape in TENSORS.values():
            numbers = np.ones(shape, np.float32)
            if len(shape) == 2:
                numbers = draw.standard_normal(shape, np.float32) / np.float32(shape[1] ** 0.5)
            stream.write((numbers.view(np.uint32) >> 16).astype("<u2").tobytes())
    return at / 2e6


SPY = """
import os, subprocess, sys, time
start = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
assert status == 0
print(time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""
"""Measures a process from a small one: the peak of a child is at least that of its parent."""


def measured(args, folder, checkout=None):
    """A process: seconds by the clock, of the processor, and its peak in MiB.

    It runs in a folder without attnctl, which -m would take before that of the path.
    """
    env = {**os.environ, "HF_HUB_OFFLINE": "1", **({"PYTHONPATH": checkout} if checkout else {})}
    spied = [sys.executable, "-c", SPY, *args]
    done = subprocess.run(spied, env=env, cwd=folder, capture_output=True, text=True, check=True)
    return [float(each) for each in done.stdout.split()]


def main():
    here = str(Path(__file__).resolve().parents[2])
    rounds = int(os.environ.get("ROUNDS", "5"))
    ids = ",".join(map(str, range(1, 129)))
    print(f"{processor()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name:
        print(f"{write_checkpoint(Path(name)):.0f} M parameters")
        for options in (["--layer", "19"], ["--layer", "10"], ["--layer", "0"]):
            run = [sys.executable, "-m", "attnctl", "run", "--model", name, *options, "--ids", ids]
            run += ["--step", "attention_weights"]
            sides = {"torch": ([sys.executable, "-c", TORCH, name, options[1]], None)}
            sides |= {each: (run, each) for each in (*sys.argv[1:], here)}
            found = {side: [] for side in sides}
            for _ in range(rounds):
                for side, (args, checkout) in sides.items():
                    found[side].append(measured(args, name, checkout))
            least = {side: np.min(each, axis=0) for side, each in found.items()}
            for side, each in least.items():
                clock, busy, peak = each / least["torch"]
                print(
                    f"{' '.join(options)}  {side}: {each[0]:.2f} s, {each[1]:.2f} s of processor, "
                    f"{each[2]:.0f} MiB: {clock:.2f}, {busy:.2f}, {peak:.3f} of torch",
                    flush=True,
                )


if __name__ == "__main__":
    main()
