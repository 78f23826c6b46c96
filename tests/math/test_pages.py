"""Keys and values in pages: what a table reads is what it is by hand, whatever free slots hold."""

import re

import numpy as np
import pytest

import attnctl
from attnctl.formats import write

SLOTS, PAGES, KV_HEADS, D = 4, 10, 2, 8
TABLE = np.array([[5, 2, -1], [7, 1, 9], [0, 3, 6]])
LENGTHS = np.array([7, 5, 12])
VARIANTS = {
    "plain": {},
    "causal": {"causal": True},
    "window": {"causal": True, "window": (2, 0)},
    "rope": {"positions": "rope", "causal": True},
    "tiles": {"keep": ["head_outputs"]},
}
NAMES = {
    "ours": "key_pages value_pages page_table key_lengths",
    "flash-attn": "k_cache v_cache block_table cache_seqlens",
    "vllm": "key_cache value_cache block_tables seq_lens",
    "flashinfer": "paged_k_cache paged_v_cache page_table kv_lens",
}


def drawn(*shape, seed=0):
    return np.random.RandomState(seed).standard_normal(shape)


def paged(queries=2, heads=4, free=np.nan):
    """A batch of three, with something in every slot that is free."""
    found = {"Q": drawn(3, queries, heads, D)}
    for at, name in enumerate(("key_pages", "value_pages"), 1):
        found[name] = np.full((PAGES, SLOTS, KV_HEADS, D), free)
        for member, key, page, slot in in_use():
            found[name][page, slot] = drawn(KV_HEADS, D, seed=100 * at + 20 * member + key)
    return {**found, "page_table": TABLE, "key_lengths": LENGTHS}


def in_use():
    return [
        (member, key, TABLE[member, key // SLOTS], key % SLOTS)
        for member, length in enumerate(LENGTHS)
        for key in range(length)
    ]


def by_hand(arrays):
    """The same as padded arrays, with zeros where no key is."""
    out = {name: np.zeros((3, KV_HEADS, SLOTS * TABLE.shape[1], D)) for name in "KV"}
    for member, key, page, slot in in_use():
        out["K"][member, :, key] = arrays["key_pages"][page, slot]
        out["V"][member, :, key] = arrays["value_pages"][page, slot]
    return {**out, "Q": arrays["Q"].swapaxes(1, 2), "key_lengths": LENGTHS}


@pytest.mark.parametrize("asked", VARIANTS.values(), ids=VARIANTS)
def test_pages_are_what_is_read_of_them_by_hand(asked):
    arrays = paged()
    found, expected = attnctl.attend(arrays, **asked), attnctl.attend(by_hand(arrays), **asked)
    for name in {"K", "V", "attention_weights", "head_outputs"} & {*expected} & {*found}:
        assert (found[name] == expected[name]).all(), name


def test_a_sequence_may_have_no_key_and_no_page():
    """As serving code pads a table, for a request that has not begun."""
    table = np.array([[5, 2, -1], [-1, -1, -1], [0, 3, 6]])
    arrays = {**paged(), "page_table": table, "key_lengths": np.array([7, 0, 12])}
    found, whole = (attnctl.attend(each)["head_outputs"] for each in (arrays, paged()))
    assert (found[[0, 2]] == whole[[0, 2]]).all()
    assert not found[1].any()


def heads_first(arrays):
    """The same with pages of (page, head, slot, d)."""
    return {name: x.swapaxes(1, 2) if name.endswith("_pages") else x for name, x in arrays.items()}


@pytest.mark.parametrize("causal", [False, True])
def test_heads_may_stand_before_slots(causal):
    """Where the keys would not have room otherwise."""
    found = attnctl.attend(heads_first(paged()), causal=causal)
    expected = attnctl.attend(paged(), causal=causal)
    assert (found["head_outputs"] == expected["head_outputs"]).all()
    assert found["key_pages"].shape == expected["key_pages"].shape
    assert found.header["notes"] == ["Read pages as (page, head, slot, d)."]
    assert attnctl.check(found).agrees
    theirs = {**heads_first(paged()), "out": expected["head_outputs"].swapaxes(1, 2)}
    assert attnctl.check(theirs, causal=causal).agrees


def test_heads_before_slots_in_one_row():
    theirs = {
        **heads_first(paged()),
        "paged_kv_indptr": [0, 2, 4, 7],
        "paged_kv_indices": [5, 2, 7, 1, 0, 3, 6],
        "paged_kv_last_page_len": [3, 1, 4],
    }
    del theirs["page_table"], theirs["key_lengths"]
    assert (attnctl.attend(theirs)["head_outputs"] == attnctl.attend(paged())["head_outputs"]).all()


def test_heads_that_queries_cannot_share_are_slots():
    """Four slots of three heads have room for the keys, but four heads of queries do not share three."""
    keys = drawn(10, 4, 3, D, seed=1)  # (page, head, slot, d)
    arrays = {"Q": drawn(1, 2, 4, D), "key_pages": keys, "value_pages": keys}
    arrays |= {"page_table": [[5, 2]], "key_lengths": [6]}
    assert attnctl.attend(arrays)["K"].shape == (1, 4, 6, D)


def test_pages_that_may_be_either_are_as_documented_and_that_is_said():
    keys = drawn(10, 2, 4, D, seed=1)
    arrays = {"Q": drawn(1, 2, 4, D), "key_pages": keys, "value_pages": keys}
    found = attnctl.attend({**arrays, "page_table": [[5, 2, 7]], "key_lengths": [5]})
    assert found["K"].shape == (1, 4, 6, D)
    (note,) = found.header["notes"]
    assert note.startswith("Pages are read as (page, slot, head, d): 2 slots of 4 heads. If they are")


def test_free_slots_change_no_bit():
    nothing, *others = (attnctl.attend(paged(free=free)) for free in (0.0, np.nan, np.inf, 1e300))
    for other in others:
        assert all((other[name] == nothing[name]).all() for name in nothing if "pages" not in name)


@pytest.mark.parametrize("member", range(3))
def test_one_sequence_needs_no_batch(member):
    arrays = paged()
    whole = attnctl.attend(arrays, causal=True)["head_outputs"]
    one = {**arrays, **{name: arrays[name][member] for name in ("Q", "page_table", "key_lengths")}}
    alone = attnctl.attend(one, causal=True)
    assert (alone["head_outputs"] == whole[member]).all()
    assert attnctl.check(alone).agrees


def test_a_query_of_each_sequence_needs_no_axis():
    arrays = paged(queries=1)
    whole = attnctl.attend(arrays, causal=True)["head_outputs"]
    alone = {**arrays, "Q": arrays["Q"][:, 0]}
    assert (attnctl.attend(alone, causal=True)["head_outputs"] == whole).all()
    assert attnctl.check({**alone, "out": whole[:, :, 0]}, causal=True).agrees


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_kernels_have_names_of_their_own(names):
    arrays = paged()
    theirs = {"q": arrays.pop("Q"), **dict(zip(names.split(), arrays.values(), strict=True))}
    out = attnctl.attend(theirs, causal=True)["head_outputs"]
    assert (out == attnctl.attend(paged(), causal=True)["head_outputs"]).all()
    assert attnctl.check({**theirs, "out": out.swapaxes(1, 2)}, causal=True).agrees


def test_pages_may_come_in_one_row():
    """As FlashInfer has them: where each sequence's pages end, the pages, and the keys of its last page."""
    arrays = paged()
    out = attnctl.attend(arrays, causal=True)["head_outputs"]
    theirs = {
        "q": arrays["Q"],
        "kv_cache": np.stack([arrays["key_pages"], arrays["value_pages"]], axis=1),
        "paged_kv_indptr": [0, 2, 4, 7],
        "paged_kv_indices": [5, 2, 7, 1, 0, 3, 6],
        "paged_kv_last_page_len": [3, 1, 4],
    }
    assert (attnctl.attend(theirs, causal=True)["head_outputs"] == out).all()
    assert attnctl.check({**theirs, "out": out.swapaxes(1, 2)}, causal=True).agrees
    with pytest.raises(
        attnctl.AttnError, match=re.escape("page_ends: [0, 2, 7], expected whole numbers that")
    ):
        attnctl.attend({**theirs, "paged_kv_indptr": [0, 2, 7]})


def test_a_cache_without_a_table_is_none_of_pages():
    arrays = {name: drawn(2, 5, 4, seed=at) for at, name in enumerate(("q", "k", "v", "k_cache"))}
    assert "key_pages" not in attnctl.attend(arrays)


def test_a_dump_of_pages_is_one(tmp_path):
    trace = attnctl.attend(paged(), causal=True)
    write([trace], tmp_path / "x.json")
    again = attnctl.load(tmp_path / "x.json")
    assert again.steps == trace.steps
    assert attnctl.check(again).agrees
    assert attnctl.check(again, causal=True).steps["K"].verdict.value == "agrees"
    assert attnctl.explain(again, "K[0,1,5,3]").inputs == (("key_pages", (2, 1, 1, 3)),)


def test_gradients_go_back_to_the_pages():
    """Sequences that share a page add up there; free slots have none."""
    arrays = {
        **paged(),
        "page_table": np.array([[7, 1, 9], [7, 1, 9], [7, 1, 9]]),
        "key_lengths": [5, 5, 5],
    }
    trace = attnctl.attend(arrays, backward=True)
    for pages, name in (("d_key_pages", "d_K"), ("d_value_pages", "d_V")):
        expected = np.zeros(arrays["key_pages"].shape)
        for key in range(5):
            expected[[7, 1][key // SLOTS], key % SLOTS] = trace[name][:, :, key].sum(axis=0)
        np.testing.assert_allclose(trace[pages], expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"value_pages": None}, "no value_pages in the arrays; pages are read by key_pages, value_pages"),
        ({"key_lengths": None}, "no key_lengths in the arrays; pages are read by key_pages, value_pages"),
        ({"key_lengths": [7, 5, 13]}, "page_table: 3 pages of 4 slots hold 12 keys, but sequence 2 has 13"),
        ({"key_lengths": [7, 5]}, "key_lengths: 2 numbers, but page_table has 3 rows; give one each"),
        ({"page_table": TABLE + 4}, "page_table: page 11 at [1, 0], but there are pages 0 to 9"),
        ({"page_table": TABLE[:1] - 6, "key_lengths": [7]}, "page_table: page -1 at [0, 0]"),
        ({"key_lengths": [7, np.nan, 3]}, "key_lengths: [7.0, nan, 3.0], expected how many keys each"),
        ({"key_lengths": [7, -1, 3]}, "key_lengths: -1 at [1]; write how many keys are real"),
        ({"page_table": TABLE / 2}, "page_table: 3 × 3 of float64, expected whole numbers, (batch, page)"),
        ({"key_pages": drawn(10, 4, 8)}, "key_pages: 10 × 4 × 8, expected (page, slot, head, d)"),
        (
            {"value_pages": drawn(10, 8, 2, 8)},
            "key_pages is 10 × 4 × 2 × 8 but value_pages is 10 × 8 × 2 × 8",
        ),
        ({"key_pages": np.full((10, 4, 2, 8), np.nan)}, "key_pages: nan at [0, 0, 0, 0] (and 383 more)"),
    ],
)
def test_what_is_no_page_is_refused(changed, said):
    arrays = {name: x for name, x in {**paged(), **changed}.items() if x is not None}
    with pytest.raises(attnctl.AttnError, match=re.escape(said)):
        attnctl.attend(arrays)


# --- what programs read of pages themselves ---


def read_whole(pages, table):
    """Every slot of the pages, whatever is in those that are free."""
    return pages[table].reshape(len(table), -1, KV_HEADS, D).swapaxes(1, 2)


@pytest.mark.parametrize("times", [1, 2], ids=["by kv head", "for each head"])
def test_what_a_program_read_is_held_to_the_pages(times):
    """Free slots are read along by most, and nothing is made of them."""
    arrays, table = paged(free=7.5), np.maximum(TABLE, 0)
    theirs = {"q": arrays["Q"], "k_cache": arrays["key_pages"], "v_cache": arrays["value_pages"]}
    theirs |= {"block_table": table, "cache_seqlens": LENGTHS}
    read = {
        name: np.repeat(read_whole(arrays[f"{word}_pages"], table), times, axis=1) for name, word in WORDS
    }
    out = attnctl.attend(arrays)["head_outputs"]
    assert attnctl.check({**theirs, **read, "head_outputs": out}).agrees
    shifted = np.repeat(read_whole(arrays["value_pages"], table - 1), times, axis=1)
    said = attnctl.check({**theirs, **read, "V": shifted}).findings
    assert [(each.step, each.mistake) for each in said] == [
        ("V_shared" if times > 1 else "V", "page-table-shifted")
    ]


WORDS = (("K", "key"), ("V", "value"))
