"""torch's flex_attention, with the rules of attention-gym as its score and mask functions.

attnctl conform samples/conform/torch_flex.py:attention --framework torch --quick --backward
On a CPU torch refuses its backward pass, though what it has for it is right where nothing is compiled.
"""

import warnings

import torch
from torch.nn.attention import flex_attention as library
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

library._validate_device = lambda *_: None  # noqa: SLF001  (what refuses)
torch.compiler.set_stance("force_eager")
warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")


def attention(q, k, v, *, causal=False, window=None, softcap=None, scale=None, alibi_slopes=None):  # noqa: PLR0913
    rules = [*([lambda i, j: i >= j] if causal else []), *([within(*window)] if window else [])]

    def allowed(batch, head, i, j):
        seen = torch.ones_like(i + j, dtype=torch.bool)
        for rule in rules:
            seen = seen & rule(i, j)
        return seen

    def bent(score, batch, head, i, j):
        if softcap is not None:
            score = softcap * torch.tanh(score / softcap)
        if alibi_slopes is not None:
            score = score - alibi_slopes[head] * (i - j).abs()
        return score

    n, m = q.shape[-2], k.shape[-2]
    mask = create_block_mask(allowed, None, None, n, m, device=q.device) if rules else None
    grouped = q.shape[1] != k.shape[1]
    return flex_attention(q, k, v, bent, mask, scale, enable_gqa=grouped)


def within(left, right):
    return lambda i, j: (j >= i - left) & (j <= i + right)
