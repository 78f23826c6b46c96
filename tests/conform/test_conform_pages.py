"""Kernels that read keys and values in pages, as serving has them, right and wrong."""

import numpy as np
import pytest

import attnctl


def attention(q, k, v, *, causal, hidden=0):
    """One sequence's, (n, head, d); the last query sees the last key but those hidden."""
    wide = np.promote_types(q.dtype, np.float32)
    q, k, v = (x.astype(wide).swapaxes(0, 1) for x in (q, k, v))
    k, v = (np.repeat(x, len(q) // len(x), axis=0) for x in (k, v))
    s = q @ k.swapaxes(1, 2) * q.shape[-1] ** -0.5
    keys = s.shape[2] - hidden
    seen = np.tri(*s.shape[1:], keys - s.shape[1], dtype=bool) if causal else True
    s = np.where(seen & (np.arange(s.shape[2]) < keys), s, -np.inf)
    top = s.max(axis=-1, keepdims=True)
    e = np.exp(s - np.where(np.isneginf(top), 0, top))
    total = e.sum(axis=-1, keepdims=True)
    return (e / np.where(total == 0, 1, total) @ v).swapaxes(0, 1)


def whole(pages, rows):
    return pages.reshape(-1, *pages.shape[2:])[rows]


def as_it_is(value, *_):
    return value


def full(length, slots):
    return -(-length // slots) * slots


def paged(table=as_it_is, length=as_it_is, hides=False):
    """A function in which something may be done to its table, or to a length."""

    def kernel(q, k_cache, v_cache, cache_seqlens, block_table, *, causal=False):
        out, slots = np.zeros((*q.shape[:-1], v_cache.shape[-1]), q.dtype), k_cache.shape[1]
        pages = table(np.asarray(block_table))
        for at, own in enumerate(np.asarray(cache_seqlens)):
            key = np.arange(length(int(own), slots))
            rows = pages[at, key // slots].astype(np.int64) * slots + key % slots
            k, v = whole(k_cache, rows), whole(v_cache, rows)
            out[at] = attention(q[at], k, v, causal=causal, hidden=(len(key) - own) * hides)
        return out

    return kernel


WRONG = {
    "the table counts from 1": ("page-table-shifted", paged(table=lambda table: table - 1)),
    "the row of the next": ("page-of-another", paged(table=lambda table: np.roll(table, -1, axis=0))),
    "pages in 16 bits": ("page-index-16-bits", paged(table=lambda table: table.astype(np.uint16))),
    "pages in 16 bits, with a sign": (
        "page-index-16-bits",
        paged(table=lambda table: table.astype(np.int16)),
    ),
    "the last page in full": ("page-read-in-full", paged(length=full)),
    "0 times NaN": ("page-read-in-full", paged(length=full, hides=True)),
}
ASKED = {"quick": True, "dtypes": ["float64"]}


def optional(q, k_cache, v_cache, cache_seqlens=None, block_table=None, causal=False):
    """As flash-attention's: without a table the cache is a row of keys for each sequence."""
    if block_table is None:
        batch, keys = k_cache.shape[:2]
        block_table = np.arange(batch)[:, None]
        cache_seqlens = np.full(batch, keys) if cache_seqlens is None else cache_seqlens
    return paged()(q, k_cache, v_cache, cache_seqlens, block_table, causal=causal)


def varlen(  # noqa: PLR0917  (as theirs)
    q, k, v, max_seqlen_q, cu_seqlens_q, max_seqlen_k, cu_seqlens_k=None, seqused_k=None, *,
    causal=False, block_table=None,
):  # fmt: skip
    """As vLLM's: queries in one row, of one sequence here."""
    assert cu_seqlens_k is None or seqused_k is None
    if len(cu_seqlens_q) > 2:
        raise NotImplementedError
    if block_table is None:
        k, v, lengths, block_table = k[None], v[None], seqused_k, [[0]]
        seqused_k = [k.shape[1]] if lengths is None else lengths
    return paged()(q[None], k, v, seqused_k, block_table, causal=causal)[0]


def in_one_row(
    q, k_cache, v_cache, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, causal=False
):
    """As FlashInfer's."""
    slots, counts = k_cache.shape[1], np.diff(paged_kv_indptr)
    table = np.zeros((len(counts), max(counts)), int)
    for at, count in enumerate(counts):
        table[at, :count] = paged_kv_indices[paged_kv_indptr[at] :][:count]
    return paged()(q, k_cache, v_cache, (counts - 1) * slots + paged_kv_last_page_len, table, causal=causal)


RIGHT = {
    "a table": paged(),
    "a table or none": optional,
    "like vLLM": varlen,
    "like FlashInfer": in_one_row,
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("kernel", RIGHT.values(), ids=RIGHT)
def test_a_right_one_conforms(kernel):
    found = attnctl.conform(kernel, features=["attention", "pages", "causal", "pairs", "lengths"], **ASKED)
    assert found.agrees, str(found)
    assert {feature.feature for feature in found.features if not feature.skipped} >= {"pages", "causal"}


@pytest.mark.sample(3)
@pytest.mark.parametrize(("name", "kernel"), WRONG.values(), ids=WRONG)
def test_a_wrong_one_is_named(name, kernel):
    found = attnctl.conform(kernel, features=["pages"], **ASKED)
    assert {each.failure.mistake for each in found.wrong} == {name}, str(found)


# --- what pages and tables may be instead ---


def heads_before_slots(q, k_cache, v_cache, cache_seqlens, block_table, *, causal=False):
    """As FlashInfer's HND, and TensorRT-LLM."""
    k_cache, v_cache = k_cache.swapaxes(1, 2), v_cache.swapaxes(1, 2)
    return paged()(q, k_cache, v_cache, cache_seqlens, block_table, causal=causal)


def heads_before_slots_or_none(q, k_cache, v_cache, cache_seqlens=None, block_table=None, causal=False):
    if block_table is not None:
        k_cache, v_cache = k_cache.swapaxes(1, 2), v_cache.swapaxes(1, 2)
    return optional(q, k_cache, v_cache, cache_seqlens, block_table, causal=causal)


def reads_whole_table(q, k_cache, v_cache, cache_seqlens, block_table, *, causal=False):
    """Every page that the table names has to be one, as where all are copied together first."""
    table = np.asarray(block_table)
    if (table < 0).any():
        raise IndexError(f"page {table.min()} is out of range")
    return paged()(q, k_cache, v_cache, cache_seqlens, block_table, causal=causal)


AXES = "(page, head, slot, d)"
FEATURES = ["attention", "pages", "decode", "conventions"]
OTHERS = {
    "heads before slots": (heads_before_slots, {"pages": AXES}),
    "heads before slots, or no pages": (heads_before_slots_or_none, {"pages": AXES}),
    "a whole table": (reads_whole_table, {"page table beyond a length": "some page"}),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize(("kernel", "said"), OTHERS.values(), ids=OTHERS)
def test_what_is_otherwise_is_found_out_and_said(kernel, said):
    found = attnctl.conform(kernel, features=FEATURES, **ASKED)
    assert found.agrees, str(found)
    assert said.items() <= found.conventions.items()
    assert {feature.feature for feature in found.features if not feature.skipped} >= {"pages"}


def test_tables_that_name_no_page_are_handed_to_those_that_take_them():
    seen = []

    def kernel(q, k_cache, v_cache, cache_seqlens, block_table, *, causal=False):
        seen.append(np.asarray(block_table).min())
        return paged()(q, k_cache, v_cache, cache_seqlens, block_table, causal=causal)

    found = attnctl.conform(kernel, features=FEATURES, **ASKED)
    assert found.agrees
    assert "page table beyond a length" not in found.conventions
    assert min(seen) == -1


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("convention", "kernel"),
    [("page table beyond a length", reads_whole_table), ("pages", heads_before_slots)],
)
def test_what_is_declared_is_held_to(convention, kernel, tmp_path):
    usual = {"pages": "(page, slot, head, d)", "page table beyond a length": "no page"}
    claims = tmp_path / "claims.yaml"
    claims.write_text(f'conventions: {{{convention}: "{usual[convention]}"}}\n', encoding="utf-8")
    found = attnctl.conform(kernel, features=FEATURES, claims=claims, **ASKED)
    assert not found.agrees


@pytest.mark.slow
def test_minus_one_that_is_read_as_the_last_page_is_wrong():
    """Pages behind the length are read: −1 is the last one to Python."""

    def clipped(q, k_cache, v_cache, cache_seqlens, block_table, *, causal=False):
        most = block_table.shape[1] * k_cache.shape[1]
        full = paged(length=lambda length, slots: min(length + 3 * slots, most))
        return full(q, k_cache, v_cache, cache_seqlens, block_table, causal=causal)

    found = attnctl.conform(clipped, features=["pages"], **ASKED)
    assert not found.agrees
    assert {each.failure.mistake for each in found.wrong} == {"page-read-in-full"}, str(found)
