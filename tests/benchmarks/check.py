"""`check` of wrong dumps against what is aimed at: python tests/benchmarks/check.py [n ...] [mistake ...]

Ten mistakes are planted as a person writes them, in four heads of either type, and recorded whole, at
their ends, or as weights alone. Time is that of the processor; memory is the peak of the process.
"""

import json
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from bench import ATTNCTL, processor
from corpus import measured

sys.path.insert(0, str(Path(__file__).parents[1] / "check"))
import planted

HEADS = 4
PLAIN = planted.Kind(heads=HEADS, d_model=256, d=64, dtype="float32")
CAUSAL = PLAIN.but(causal=True)
KINDS = {
    "no-scale": (PLAIN, []),
    "softmax-over-queries": (PLAIN, []),
    "query-key-swapped": (PLAIN, []),
    "low-precision": (PLAIN, []),
    "mask-ignored": (CAUSAL, ["--causal"]),
    "scale-by-sqrt-d_model": (CAUSAL, ["--causal"]),
    "dropout-left-on": (CAUSAL, ["--causal"]),
    "kv-heads-tiled": (CAUSAL.but(kv_heads=2), ["--causal", "--kv-heads", "2"]),
    "rotary-pairs-wrong": (CAUSAL.but(rope=True), ["--causal", "--positions", "rope"]),
    "bias-missing": (PLAIN.but(bias=True), []),
}
RECORDED = {
    "everything": ((), []),
    "ends": ((*planted.INPUTS, "output"), ["--step", "output"]),
    "weights": ((*planted.INPUTS, "attention_weights"), ["--step", "attention_weights"]),
}


SIZES, TYPES = (512, 1024, 2048), ("float32", "float64")
ROOM = 0.8
"""Seconds that a search may take besides two checks of the right dump."""


class Figures(NamedTuple):
    """Of a wrong dump: its time by what is aimed at, its peak by that of the run, and what was named."""

    time: float
    memory: float
    mistake: str | None


def save(path, arrays, names):
    np.savez(path, **{name: x for name, x in arrays.items() if not names or name in names})


def measure(folder, kind, mistake, what, options):
    """A wrong dump beside the right one, and beside the run that makes the right one."""
    right, wrong, made = (Path(folder) / name for name in ("right.npz", "wrong.npz", "made.npz"))
    names, steps = RECORDED[what]
    options = ["--heads", HEADS, *options]
    save(right, planted.attend(kind, None), names)
    save(wrong, planted.attend(kind, mistake), names)
    run = measured(ATTNCTL, "attend", right, *options, "--dtype", kind.dtype, *steps, "-o", made)
    _, walk, _ = measured(ATTNCTL, "check", right, *options, "--json")
    out, seconds, peak = measured(ATTNCTL, "check", wrong, *options, "--json")
    return Figures(seconds / (2 * walk + ROOM), peak / run[2], json.loads(out)["mistake"])


def main():
    sizes = [int(word) for word in sys.argv[1:] if word.isdecimal()] or SIZES
    mistakes = [word for word in sys.argv[1:] if not word.isdecimal()] or KINDS
    print(f"{processor()}: time by two checks of the right dump and {ROOM} s, memory by the run")
    every = []
    with tempfile.TemporaryDirectory() as folder:
        for n, dtype, mistake, what in product(sizes, TYPES, mistakes, RECORDED):
            kind, options = KINDS[mistake]
            found = measure(folder, kind.but(n=n, dtype=dtype), mistake, what, options)
            every.append(found)
            line = f"{n:5} {dtype} {mistake:24} {what:11} {found.time:5.2f} {found.memory:5.1f}"
            print(f"{line} {found.mistake}", flush=True)
    within = sum(found.time <= 1 for found in every), sum(found.memory <= 2 for found in every)
    print(f"of {len(every)}, {within[0]} in time, {within[1]} in twice the memory of the run")


if __name__ == "__main__":
    main()
