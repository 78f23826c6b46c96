"""Statistics of a corpus over a Ray cluster whose machines see the same files:

python samples/corpus/over_ray.py CORPUS SHARDS FOLDER [OPTIONS of attnctl corpus run, like --model DIR]

A worker that is lost has its shard done by another; shards that are complete in FOLDER are kept. Each shard
is a process of its own; with `attnctl corpus run CORPUS --on ray=auto` each worker is, without files.
"""

import subprocess
import sys
from pathlib import Path

try:
    import ray
except ImportError:
    sys.exit("Ray is not installed: pip install 'attnctl[ray]'")


@ray.remote(num_cpus=1, max_retries=3)
def measure(corpus, shard, part, options):
    subprocess.run(["attnctl", "corpus", "run", corpus, "--shard", shard, "-o", part, *options], check=True)
    return part


if len(sys.argv) < 4:
    sys.exit(__doc__)
corpus, shards, folder, *options = sys.argv[1:]
Path(folder).mkdir(parents=True, exist_ok=True)
try:
    ray.init(address="auto")
except ConnectionError:
    sys.exit("no cluster here: `ray start --head` begins one; attnctl corpus run --on ray begins its own")
parts = ray.get(
    [
        measure.remote(corpus, f"{number}/{shards}", f"{folder}/part-{number}.json", options)
        for number in range(1, int(shards) + 1)
    ]
)
subprocess.run(["attnctl", "corpus", "merge", *parts, "-o", f"{folder}/whole.json"], check=True)
