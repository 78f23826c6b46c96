"""Every verb on a large dump, against reading the file once: python tests/benchmarks/size.py [n]

The dump has every step of eight heads over n = 2048 tokens in float32, half a gigabyte and more. Time
is that of the processor; memory is the peak of the process beside the size of the file. What a pipe gets
of `show` is left out: it is every number, and takes as long as writing them.
"""

import sys
import tempfile
from pathlib import Path

from bench import ATTNCTL
from corpus import measured

READ = "import sys\nwith open(sys.argv[1], 'rb') as f:\n while f.read(1 << 20): pass"
LOAD = """
import numpy as np, sys
arrays = np.load(sys.argv[1])
print(sum(float(arrays[name].sum()) for name in arrays if arrays[name].dtype.kind == "f"))
"""


def main():
    tokens = int(sys.argv[1]) if sys.argv[1:] else 2048
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dump, other, words = folder / "dump.npz", folder / "other.npz", folder / "words.txt"
        words.write_text(" ".join(f"w{i % 500}" for i in range(tokens)) + "\n")
        run = [ATTNCTL, "run", "--file", words, "--d-model", "512", "--heads", "8", "--causal"]
        measured(*run, "--dtype", "float32", "-o", dump)
        measured(*run, "--dtype", "float32", "--seed", "1", "-o", other)
        mib = dump.stat().st_size / 2**20
        print(f"a dump of {mib:.0f} MiB")
        once, loaded = (measured(sys.executable, "-c", code, dump) for code in (READ, LOAD))
        print(f"{'reading its bytes':22} {once[1]:6.2f} s {once[2]:7.0f} MiB")
        print(f"{'np.load and a sum':22} {loaded[1]:6.2f} s {loaded[2]:7.0f} MiB")
        for verb, args in {
            "show a step": ["show", dump, "--step", "output"],
            "explain a weight": ["explain", dump, "A[0,2000,7]"],
            "explain an output": ["explain", dump, "Y[2000,7]", "--depth", "3"],
            "stats": ["stats", dump],
            "diff": ["diff", dump, other],
        }.items():
            out, seconds, peak = measured(ATTNCTL, *args)
            print(
                f"{verb:22} {seconds:6.2f} s {peak:7.0f} MiB: {seconds / loaded[1]:.2f} of its time, "
                f"{peak / mib:.2f} of the file in memory, {len(out):,} bytes"
            )


if __name__ == "__main__":
    main()
