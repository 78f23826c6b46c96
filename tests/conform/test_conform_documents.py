"""Kernels of packed documents, as flash-attention's varlen functions take them, right and wrong."""

import numpy as np
import pytest

import attnctl


def attention(q, k, v, scale, *, causal):
    """One document's, (n, head, d); the last query sees the last key."""
    wide = np.promote_types(q.dtype, np.float32)
    q, k, v = (x.astype(wide).swapaxes(0, 1) for x in (q, k, v))
    k, v = (np.repeat(x, len(q) // len(x), axis=0) for x in (k, v))
    s = q @ k.swapaxes(1, 2) * scale
    seen = np.tri(*s.shape[1:], s.shape[2] - s.shape[1], dtype=bool) if causal else True
    s = np.where(seen, s, -np.inf)
    top = s.max(axis=-1, keepdims=True)
    e = np.exp(s - np.where(np.isneginf(top), 0, top))
    total = e.sum(axis=-1, keepdims=True)
    return (e / np.where(total == 0, 1, total) @ v).swapaxes(0, 1)


def varlen(read=lambda ends: ends, reach=lambda own, keys: own):
    """A function that reads its ends and reaches its keys in some way."""

    def kernel(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, *, causal=False):
        out = np.zeros((*q.shape[:2], v.shape[-1]), q.dtype)
        one = len(cu_seqlens_q) == 2
        of_q, of_k = (ends if one else read([*map(int, ends)]) for ends in (cu_seqlens_q, cu_seqlens_k))
        for q0, q1, k0, k1 in zip(of_q, of_q[1:], of_k, of_k[1:], strict=False):
            rows, keys = slice(q0, q1), reach(slice(k0, k1), len(k))
            out[rows] = attention(q[rows], k[keys], v[keys], q.shape[-1] ** -0.5, causal=causal)
        return out

    return kernel


WRONG = {
    "documents-leak": varlen(reach=lambda own, keys: slice(max(own.start - 1, 0), own.stop)),
    "option-ignored": varlen(reach=lambda own, keys: slice(0, keys)),
    "documents-counts": varlen(read=lambda ends: [0, *sorted(np.diff(ends)), ends[-1]]),
    "documents-last-dropped": varlen(read=lambda ends: ends[:-1]),
}
ASKED = {"quick": True, "dtypes": ["float64"]}


@pytest.mark.parametrize("more", [{}, {"like": "vllm"}], ids=["as it is", "like vllm"])
def test_a_right_one_conforms(more):
    found = attnctl.conform(
        varlen(), features=["attention", "documents", "causal", "pairs"], **ASKED, **more
    )
    assert found.agrees, str(found)
    assert {feature.feature for feature in found.features} >= {"documents", "pairs"}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_one_is_named(name):
    found = attnctl.conform(WRONG[name], features=["documents"], **ASKED)
    assert {each.failure.mistake for each in found.wrong} == {name}, str(found)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_attention_with_a_mask_of_documents_conforms():
    torch = pytest.importorskip("torch")
    flex = pytest.importorskip("torch.nn.attention.flex_attention")

    def kernel(q, k, v, documents=None):
        if documents is None:
            return flex.flex_attention(q, k, v)
        number = torch.searchsorted(torch.tensor(documents), torch.arange(k.shape[-2]), right=True)

        def same(batch, head, query, key):
            return number[query] == number[key]

        block = flex.create_block_mask(same, None, None, q.shape[-2], k.shape[-2], device="cpu")
        return flex.flex_attention(q, k, v, block_mask=block)

    asked = {"features": ["attention", "documents"], "layout": "bhnd", "framework": "torch"}
    found = attnctl.conform(kernel, **asked, quick=True, dtypes=["float32"])
    assert found.agrees, str(found)
