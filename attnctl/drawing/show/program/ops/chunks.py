"""How softmax over chunks of keys is written, and the merging of the chunks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attnctl.drawing.show.program.ops.scores import is_blind, logsumexp_of, softmax_of
from attnctl.drawing.show.program.ops.writing import Writing, writes
from attnctl.math.kind import spans
from attnctl.math.ops import chunks


class Parts(NamedTuple):
    """Chunks of keys: the variable that holds them, and whether a row sees nothing of one."""

    name: str
    blind: bool


def parts_of(w: Writing) -> Parts:
    score = w.arrays[0]
    cut = spans(w.op.chunks, score.shape[-1])
    blind = any(is_blind(score[..., start:stop]) for start, stop in cut)
    name = w.let("chunks", str([tuple(ends) for ends in cut]))
    return Parts(name, blind)


@writes(chunks.ChunkLogSumExp)
def chunk_log_sum_exp(w: Writing) -> str:
    parts = parts_of(w)
    each = logsumexp_of(w, f"{w.x}[..., start:stop]", blind=parts.blind)
    return w.library.stacked(f"{each} for start, stop in {parts.name}", -3)


@writes(chunks.ChunkOutputs)
def chunk_outputs(w: Writing) -> str:
    s, v = w.names
    parts = parts_of(w)
    weights = softmax_of(w, f"{s}[..., start:stop]", blind=parts.blind)
    each = f"{weights} @ {v}[..., start:stop, :]"
    return w.library.stacked(f"{each} for start, stop in {parts.name}", -4)


@writes(chunks.MergeLogSumExp)
def merge_log_sum_exp(w: Writing) -> str:
    every = np.moveaxis(w.arrays[0], -3, -1)
    return logsumexp_of(w, w.library.moved_to_end(w.x, -3), blind=is_blind(every))


@writes(chunks.Shares)
def shares(w: Writing) -> str:
    parts, whole, *sink = w.names
    for logit in sink:
        whole = w.let("with_sink_too", w.call("logaddexp", whole, f"{logit}[:, None]"))
    if len(w.shapes[1]) > 2:
        whole = f"{whole}[:, None]"
    share = w.call("exp", f"{parts} - {whole}")
    return w.library.without_nan(share) if np.isneginf(w.arrays[1]).any() else share


@writes(chunks.MergeChunks)
def merge_chunks(w: Writing) -> str:
    share, outputs = w.names
    return w.product(w.library.reduce("sum", f"({share}[..., None] * {outputs})", -4))
