"""`check` of wrong dumps against the run that made them: python tests/benchmarks/check.py [n] [mistake ...]

Every mistake is planted as a person writes it, in four heads of float32, and recorded whole, at its
ends, or as weights alone. Time is that of the processor; memory is the peak of the process.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from bench import ATTNCTL
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


def save(path, arrays, names):
    np.savez(path, **{name: x for name, x in arrays.items() if not names or name in names})


def main():
    n = int(sys.argv[1]) if sys.argv[1:] else 1024
    with tempfile.TemporaryDirectory() as folder:
        dump, given, made = (Path(folder) / name for name in ("dump.npz", "given.npz", "made.npz"))
        for mistake in sys.argv[2:] or KINDS:
            kind, options = KINDS[mistake]
            arrays, options = planted.attend(kind.but(n=n), mistake), ["--heads", HEADS, *options]
            save(given, arrays, planted.INPUTS)
            for what, (names, steps) in RECORDED.items():
                save(dump, arrays, names)
                run = measured(ATTNCTL, "attend", given, *options, "--dtype", "float32", *steps, "-o", made)
                out, seconds, peak = measured(ATTNCTL, "check", dump, *options, "--json")
                print(
                    f"{n:5} {mistake:24} {what:11} {seconds:6.2f} s {peak:5.0f} MiB: "
                    f"{seconds / run[1]:5.1f} of the run's time, {peak / run[2]:5.1f} of its memory: "
                    f"{json.loads(out)['mistake']}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
