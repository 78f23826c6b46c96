"""The statistics of `attnctl stats --file` through torch and transformers, as one would write them there.

python tests/benchmarks/torch_stats.py MODEL CORPUS: prints seconds, the peak of memory and the means
by layer and head as JSON. Sentences of one length are a batch, so that nothing is padded.
"""

import json
import resource
import sys
import time
from collections import defaultdict
from pathlib import Path

import torch
from transformers import AutoModel, AutoTokenizer

MOST_ROWS = 1024


def batches(tokenizer, path):
    """Ids of sentences of one length."""
    waiting = defaultdict(list)
    with Path(path).open() as stream:
        for line in stream:
            if line.strip():
                ids = tokenizer(line.rstrip("\n"))["input_ids"]
                batch = waiting[len(ids)]
                batch.append(ids)
                if len(batch) * len(ids) >= MOST_ROWS:
                    yield torch.tensor(waiting.pop(len(ids)))
    yield from map(torch.tensor, waiting.values())


def measures(weights, ids):
    """Each measure of (sentence, head, query, key) weights: its sum by head and its rows."""
    p = weights.double()
    p = p / p.sum(-1, keepdim=True)
    n = p.shape[-1]
    bits = -torch.xlogy(p, p).sum(-1) / torch.log(torch.tensor(2.0, dtype=torch.float64))
    place = torch.arange(n)
    distance = (place[:, None] - place).abs()
    same = (ids[:, None, :, None] == ids[:, None, None, :]) & (distance > 0)
    yield "entropy", bits
    yield "effective_keys", torch.exp2(bits)
    yield "distance", (p * distance).sum(-1)
    yield "previous", p.diagonal(-1, -2, -1)
    yield "first", p[..., 0]
    yield "self", p.diagonal(0, -2, -1)
    yield "same_token", (p * same).sum(-1)


@torch.inference_mode()
def main():
    folder, path = sys.argv[1:]
    torch.set_num_threads(1)
    start = time.perf_counter()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    sums, rows = defaultdict(lambda: 0), defaultdict(int)
    for ids in batches(tokenizer, path):
        for layer, weights in enumerate(model(ids, output_attentions=True).attentions):
            for name, values in measures(weights, ids):
                sums[name, layer] = sums[name, layer] + values.sum((0, 2))
                rows[name, layer] += values.shape[0] * values.shape[2]
    names = sorted({name for name, _ in sums})
    means = {
        name: [(sums[key] / rows[key]).tolist() for key in sorted(sums) if key[0] == name] for name in names
    }
    took = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": took, "MiB": peak, "means": means}))


main()
