"""Documents in one row of tokens: each is what it is alone, and none moves another."""

import re

import numpy as np
import pytest

import attnctl

STARTS, N = (0, 5, 12), 17
ENDS = (*STARTS[1:], N)
VARIANTS = {
    "plain": {},
    "causal": {"causal": True},
    "window": {"causal": True, "window": (2, 0)},
    "rope": {"positions": "rope", "causal": True},
    "alibi": {"positions": "alibi"},
    "tiles": {"keep": ["head_outputs"]},
}


def drawn(*shape, seed=0):
    return np.random.RandomState(seed).standard_normal(shape)


def of_heads(n, seed=0):
    return {name: drawn(2, n, 8, seed=seed + at) for at, name in enumerate("QKV")}


@pytest.mark.parametrize("asked", VARIANTS.values(), ids=VARIANTS)
def test_a_document_is_what_it_is_alone(asked):
    arrays = of_heads(N)
    packed = attnctl.attend(arrays, documents=STARTS, **asked)
    for start, end in zip(STARTS, ENDS, strict=True):
        alone = attnctl.attend({name: x[:, start:end] for name, x in arrays.items()}, **asked)
        for name in {"Q_rotated", "head_outputs"} & {*alone}:
            np.testing.assert_allclose(packed[name][:, start:end], alone[name], rtol=0, atol=1e-14)


def test_of_exact_sums_it_has_the_same_bits():
    """Equal weights of 2^k keys, whole numbers as values: no order of sums rounds."""
    arrays = {"Q": np.zeros((1, 28, 2)), "K": drawn(1, 28, 2), "V": np.rint(8 * drawn(1, 28, 3))}
    packed = attnctl.attend(arrays, documents=(0, 4, 20, 24))["head_outputs"]
    for start, end in ((0, 4), (4, 20), (20, 24), (24, 28)):
        alone = attnctl.attend({name: x[:, start:end] for name, x in arrays.items()})["head_outputs"]
        assert (packed[:, start:end] == alone).all()


@pytest.mark.parametrize("n", [17, 1200], ids=["whole", "in tiles"])
def test_a_changed_document_moves_no_bit_of_another(n):
    arrays, starts = of_heads(n), (0, n // 3, n // 2)
    before = attnctl.attend(arrays, documents=starts, keep=["head_outputs"])["head_outputs"]
    for name in arrays:
        arrays[name][:, starts[1] : starts[2]] *= 50
    after = attnctl.attend(arrays, documents=starts, keep=["head_outputs"])["head_outputs"]
    same = (before == after).all(axis=(0, 2))
    assert same[: starts[1]].all()
    assert same[starts[2] :].all()
    assert not same[starts[1] : starts[2]].any()


@pytest.mark.parametrize("positions", ["sinusoidal", [[0.1 * i, 1.0, -i, 2.0] for i in range(3)]])
def test_positions_start_again_unless_they_run_on(positions):
    run = attnctl.run("a b c d e", documents=[0, 2], positions=positions)
    table = np.asarray(run["positions"])
    assert (table[2:4] == table[:2]).all()
    if positions == "sinusoidal":
        on = attnctl.run("a b c d e", documents=[0, 2], positions=positions, positions_run_on=True)
        assert (on["positions"] == attnctl.run("a b c d e", positions=positions)["positions"]).all()


def test_without_documents_nothing_runs_on():
    with pytest.raises(attnctl.AttnError, match="positions_run_on: there are no documents"):
        attnctl.run("a b", positions_run_on=True)


# --- packed arrays, as flash-attention's varlen functions take them ---

CU_SEQLENS = np.array([*STARTS, N], np.int32)


def packed():
    return {name: x.swapaxes(0, 1) for name, x in of_heads(N).items()}


@pytest.mark.parametrize("names", [["cu_seqlens"], ["cu_seqlens_q", "cu_seqlens_k"]])
def test_packed_arrays_say_their_documents(names):
    trace = attnctl.attend({**packed(), **dict.fromkeys(names, CU_SEQLENS)}, causal=True)
    expected = attnctl.attend(of_heads(N), documents=STARTS, causal=True)
    assert trace.config == expected.config
    assert (trace["head_outputs"] == expected["head_outputs"]).all()
    theirs = {name.lower(): x for name, x in packed().items()} | dict.fromkeys(names, CU_SEQLENS)
    assert attnctl.check({**theirs, "out": trace["head_outputs"].swapaxes(0, 1)}, causal=True).agrees
    leak = attnctl.attend(of_heads(N), causal=True)["head_outputs"].swapaxes(0, 1)
    said = attnctl.check({**theirs, "out": leak}, causal=True)
    assert [finding.mistake for finding in said.findings] == ["documents-leak"]


def test_queries_may_be_fewer_than_keys():
    arrays, ends = packed(), {"cu_seqlens_q": [0, 1, 2, 3], "cu_seqlens_k": CU_SEQLENS}
    out = attnctl.attend({**arrays, "Q": arrays["Q"][:3], **ends})["head_outputs"]
    for at, (start, end) in enumerate(zip(STARTS, CU_SEQLENS[1:], strict=True)):
        alone = {name: x[start:end] for name, x in arrays.items()} | {"Q": arrays["Q"][at : at + 1]}
        expected = attnctl.attend(alone, layout="nhd")["head_outputs"]
        np.testing.assert_allclose(out[:, at : at + 1], expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    "asked", [{"causal": True}, {"causal": True, "window": (2, 0)}], ids=["causal", "window"]
)
@pytest.mark.parametrize("of_queries", [[0, 1, 2, 3], [0, 3, 5, 9], [0, 7, 8, 10]])
def test_the_last_query_of_a_document_is_beside_its_last_key(of_queries, asked):
    """As in flash-attention, where there are fewer queries than keys, and where there are more."""
    arrays = {**packed(), "Q": packed()["Q"][: of_queries[-1]]}
    ends = {"cu_seqlens_q": of_queries, "cu_seqlens_k": CU_SEQLENS}
    out = attnctl.attend({**arrays, **ends}, **asked)["head_outputs"]
    for q0, q1, k0, k1 in zip(of_queries, of_queries[1:], CU_SEQLENS, CU_SEQLENS[1:], strict=False):
        alone = {name: x[k0:k1] for name, x in arrays.items()} | {"Q": arrays["Q"][q0:q1]}
        offset = int(k1 - k0 - (q1 - q0))
        expected = attnctl.attend(alone, layout="nhd", causal_offset=offset, **asked)["head_outputs"]
        np.testing.assert_allclose(out[:, q0:q1], expected, rtol=0, atol=1e-14)
    theirs = {name.lower(): x for name, x in arrays.items()} | ends
    assert attnctl.check({**theirs, "out": out.swapaxes(0, 1)}, **asked).agrees


@pytest.mark.parametrize(
    ("ends", "asked", "said"),
    [
        (
            {"cu_seqlens": [0, 5, 12]},
            {},
            "cu_seqlens: the last document ends at 12, but there are 17 rows of Q",
        ),
        ({"cu_seqlens": [0, 5, 4, 17]}, {}, "cu_seqlens: [0, 5, 4, 17], expected whole numbers that go up"),
        (
            {"cu_seqlens_q": [0, 1, 17], "cu_seqlens_k": CU_SEQLENS},
            {"causal": True},
            "documents: 2 documents of queries, and 3 of keys; say where as many begin",
        ),
    ],
)
def test_what_is_no_row_of_documents_is_refused(ends, asked, said):
    with pytest.raises(attnctl.AttnError, match=re.escape(said)):
        attnctl.attend({**packed(), **{name: np.array(x) for name, x in ends.items()}}, **asked)
