"""Right dumps of any kind of attention, drawn: nothing in them is accused, and nothing cannot be told.

But where rounding in half precision hides how the numbers of a few tokens vary.
"""

import planted as own
from check_foreign import foreign, meant, quietly
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_check_layouts import rows_first, side_by_side

import attnctl

OF_HEADS = ("Q", "K", "V", "Q_rotated", "K_rotated", "K_shared", "V_shared", "head_outputs")
LAYOUTS = {"heads first": lambda x: x, "rows first": rows_first, "side by side": side_by_side}
HALF = (own.F16, "bfloat16")
BESIDE = ((), ("rope",), ("alibi",), ("sinusoidal",), ("scores_bias",))
"""What is added, turned or taken off beside the scores of tokens."""


@st.composite
def kinds(draw):
    """Attention of a few tokens: sizes, who sees whom, positions, and what is done to scores."""
    heads = draw(st.sampled_from([1, 2, 4, 8]))
    lengths = draw(
        st.just(()) | st.lists(st.integers(1, 6), min_size=1, max_size=2).map(lambda others: (6, *others))
    )
    n = max(lengths) if lengths else draw(st.integers(2, 9))
    more_keys = 0 if lengths else draw(st.integers(0, 4))
    causal = draw(st.booleans())
    return own.Kind(
        heads=heads,
        kv_heads=draw(st.sampled_from([kv for kv in (1, 2, 4, 8) if heads % kv == 0])),
        n=n,
        keys=n + more_keys if more_keys else None,
        d_model=draw(st.sampled_from([6, 8, 12])),
        d=draw(st.sampled_from([2, 4, 6, 8])),
        d_v=draw(st.none() | st.sampled_from([3, 4])),
        causal=causal,
        offset=draw(st.sampled_from([0, more_keys])) if causal else 0,
        window=draw(st.none() | st.integers(0, n)),
        softcap=draw(st.none() | st.floats(1.0, 30.0)),
        bias=draw(st.booleans()),
        mask=draw(st.none() | st.sampled_from(["random", "blind"])),
        lengths=lengths,
        scale=draw(st.none() | st.floats(0.05, 1.0)),
        seed=draw(st.integers(0, 2**16)),
        **dict.fromkeys(draw(st.sampled_from(BESIDE)), True),
    )


@given(
    kind=kinds(),
    dtype=st.sampled_from([own.F64, own.F32, own.F16, "bfloat16"]),
    what=st.sampled_from(list(own.RECORDED)),
    layout=st.sampled_from(list(LAYOUTS)),
)
@settings(max_examples=500, suppress_health_check=[HealthCheck.too_slow])
def test_a_right_dump_is_right_whatever_is_drawn(kind, dtype, what, layout):
    near = own.bfloat16 if dtype == "bfloat16" else None
    kind = kind.but(dtype=own.F32 if near else dtype)
    arrays = own.recorded(quietly(own.attend, kind, near=near), what)
    moved = {name: LAYOUTS[layout](x) if name in OF_HEADS else x for name, x in arrays.items()}

    report = attnctl.check(foreign(moved), meant(kind))
    assert report.findings == (), str(report)
    untold = [each for each in report.cannot_tell if f"rounding in {dtype}" not in each.words]
    assert untold == [], str(report)
    assert dtype in HALF or report.cannot_tell == (), str(report)
    assert report.agrees is (None if report.cannot_tell else True), str(report)
