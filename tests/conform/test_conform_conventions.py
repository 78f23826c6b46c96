"""Right functions that differ in layout, defaults, corner and mask at once are never accused.

Each is made of its conventions, with the signature that goes with them, as someone would write it.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import attnctl
from attnctl.math.axes import rearrange
from attnctl.verbs.conform.profile import AXES

CORNERS = ("top-left", "bottom-right")
LAYOUTS = {"bhnd": "b h n d", "bnhd": "b n h d", "bnd": "b n (h d)", "nbd": "n b (h d)"}


def softmax(scores):
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = weights.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        sums = (top + np.log(total))[..., 0]
    return weights / np.where(total, total, 1), sums


def attend(q, k, v, scale, hidden=False, added=0.0):
    """Output and log-sum-exp of (batch, head, n, d), in float32 or better; shared heads are repeated."""
    kind = np.result_type(q.dtype, np.float32)
    k, v = (np.repeat(each, q.shape[1] // k.shape[1], axis=1) for each in (k, v))
    scores = q.astype(kind) @ k.astype(kind).swapaxes(-1, -2) * kind.type(scale or q.shape[-1] ** -0.5)
    weights, sums = softmax(np.where(hidden, kind.type(-np.inf), scores + kind.type(added)))
    return (weights @ v.astype(kind)).astype(q.dtype), sums


def hide(q, k, corner):
    rows, keys = q.shape[2], k.shape[2]
    return ~np.tri(rows, keys, keys - rows if corner == "bottom-right" else 0, dtype=bool)


def kernel(layout, corner, mask, scale):
    """A function in this layout, with `scale` for its default; a mask that is added is named so."""
    axes = LAYOUTS[layout]

    def attention(q, k, v, num_heads, is_causal, attn_mask, sm_scale):
        heads = {} if "(" not in axes else {"h": num_heads}
        q, k, v = (rearrange(each, f"{axes} -> b h n d", **heads) for each in (q, k, v))
        hidden = hide(q, k, corner) if is_causal else np.zeros((), dtype=bool)
        added = 0.0
        if attn_mask is not None and mask == "added":
            added = attn_mask
        elif attn_mask is not None:
            hidden = hidden | (attn_mask == (mask == "hidden"))
        return rearrange(attend(q, k, v, sm_scale, hidden, added)[0], f"b h n d -> {axes}")

    named = "attention_mask" if mask == "added" else "mask"
    said = f"q, k, v, is_causal=False, {named}=None"
    said = said.replace("v,", "v, num_heads,") if "(" in axes else said
    heads = "num_heads" if "(" in axes else "None"
    made = {"attention": attention, "default": scale}
    exec(
        f"def made({said}, sm_scale=default):\n"
        f"    return attention(q, k, v, {heads}, is_causal, {named}, sm_scale)",
        made,
    )
    return made["made"]


CONVENTIONS = list(product(LAYOUTS, CORNERS, ("may attend", "hidden", "added"), (None, 1.0, 0.3)))


@pytest.mark.sample(72)
@pytest.mark.parametrize(("layout", "corner", "mask", "scale"), CONVENTIONS)
def test_conventions_are_found_together(layout, corner, mask, scale):
    found = attnctl.conform(
        kernel(layout, corner, mask, scale),
        quick=True,
        dtypes=["float32"],
        features=["attention", "lengths", "causal", "mask", "scale", "pairs"],
    )
    if mask == "hidden":  # a boolean mask is inverted only where someone says so
        assert {each.feature for each in found.wrong} <= {"mask", "pairs"}
        return
    assert found.agrees is True, str(found)
    assert found.conventions["causal corner"] == corner
    assert found.conventions.get("layout", "bhnd") == layout
    assert found.conventions.get("by default") == (None if scale is None else f"scale {scale}")


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({"softcap": 5.0}, "softcap 5.0"),
        ({"window": (2, 1)}, "window (2, 1)"),
        ({"softcap": 0.0, "window": (-1, -1), "scale": 0.0}, None),
        ({"window": (None, None)}, None),
    ],
)
def test_what_is_on_by_default_is_read_from_the_signature(named, words):
    """A default that stands for another, as −1 and 0 do, is not on."""

    soft, near = named.get("softcap"), named.get("window")

    def attention(q, k, v, *, softcap=soft, window=near, scale=0.0):
        rows, keys = np.arange(q.shape[2])[:, None], np.arange(k.shape[2])
        hidden = np.zeros((rows.size, keys.size), dtype=bool)
        if window and None not in window and min(window) >= 0:
            hidden = (keys < rows - window[0]) | (keys > rows + window[1])
        kind = np.result_type(q.dtype, np.float32)
        scores = q.astype(kind) @ k.astype(kind).swapaxes(-1, -2) * (scale or q.shape[-1] ** -0.5)
        scores = softcap * np.tanh(scores / softcap) if softcap else scores
        return (softmax(np.where(hidden, -np.inf, scores))[0] @ v.astype(kind)).astype(q.dtype)

    found = attnctl.conform(
        attention, quick=True, dtypes=["float32"], features=["attention", "head sizes", "softcap", "window"]
    )
    assert found.agrees is True, str(found)
    assert found.conventions.get("by default") == words


def test_a_default_that_is_not_what_is_done_is_laid_aside():
    """Here 1.0 multiplies 1/√d_k."""

    def attention(q, k, v, sm_scale=1.0):
        return attend(q, k, v, q.shape[-1] ** -0.5 * sm_scale)[0]

    found = attnctl.conform(attention, quick=True, dtypes=["float32"], features=["attention", "lengths"])
    assert found.agrees is True, str(found)
    assert "by default" not in found.conventions


def test_a_wrong_function_is_named_in_a_layout_that_nobody_said():
    """The layout shows in values that are the same all over a head, whatever the weights are."""
    axes = LAYOUTS["bnhd"]

    def attention(q, k, v):
        q, k, v = (rearrange(each, f"{axes} -> b h n d") for each in (q, k, v))
        return rearrange(attend(q, k, v, 1.0)[0], f"b h n d -> {axes}")

    found = attnctl.conform(attention, quick=True, dtypes=["float32"], features=["attention"])
    assert found.conventions["layout"] == "bnhd"
    assert found.features[0].failure.mistake == "no-scale"


def test_heads_side_by_side_are_found_where_more_axes_are_members():
    """As haiku's: (…, n, h d), and (batch, head, n, d) is answered head by head, wrongly."""

    def attention(q, k, v):
        q, k, v = (each.reshape(*each.shape[:-1], 4, -1).swapaxes(-2, -3) for each in (q, k, v))
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1], dtype=q.dtype)
        out = (softmax(scores)[0] @ v).swapaxes(-2, -3)
        return out.reshape(*out.shape[:-2], -1)

    found = attnctl.conform(attention, quick=True, dtypes=["float32"], features=["attention"])
    assert found.agrees is True, str(found)
    assert (found.conventions["layout"], found.conventions["heads"]) == ("bnd", "4")


@pytest.mark.sample(6)
@pytest.mark.parametrize(("given", "returned"), [("bhnd", "bnd"), ("bnhd", "bnd"), ("nbhd", "nbd")])
def test_an_output_that_is_laid_out_for_w_o_is_found(given, returned):

    def attention(q, k, v):
        q, k, v = (rearrange(each, f"{AXES[given]} -> b h n d") for each in (q, k, v))
        return rearrange(attend(q, k, v, None)[0], f"b h n d -> {AXES[returned]}")

    found = attnctl.conform(attention, quick=True, dtypes=["float32"], features=["attention", "lengths"])
    assert found.agrees is True, str(found)
    assert found.conventions["layout"] == f"{given}:{returned}"


@pytest.mark.sample(16)
@pytest.mark.parametrize(("layout", "corner", "default"), list(product(LAYOUTS, CORNERS, (None, 1.0))))
def test_a_causal_mask_that_nobody_asked_for_is_one_finding(layout, corner, default):
    """Everything else is judged with it; said to be meant it is none."""

    def attention(q, k, v, num_heads, scale=default, mask=None):
        heads = {"h": num_heads} if "(" in LAYOUTS[layout] else {}
        q, k, v = (rearrange(each, f"{LAYOUTS[layout]} -> b h n d", **heads) for each in (q, k, v))
        hidden = hide(q, k, corner) | (False if mask is None else ~mask)
        return rearrange(attend(q, k, v, scale, hidden)[0], f"b h n d -> {LAYOUTS[layout]}")

    def hold(**declared):
        features = ["attention", "lengths", "large scores", "mask", "scale"]
        return attnctl.conform(attention, quick=True, dtypes=["float32"], features=features, **declared)

    found = hold()
    assert [(each.feature, each.failure.mistake) for each in found.wrong] == [
        ("conventions", "mask-unasked")
    ]
    assert str(found).startswith("It masks causally, and nothing asks for that: say --causal")
    assert found.conventions["causal corner"] == corner
    assert hold(always={"causal": True}).agrees is True


def test_a_causal_mask_that_its_keyword_does_not_turn_off_is_no_convention():
    def attention(q, k, v, is_causal=False):
        return attend(q, k, v, None, hide(q, k, "top-left"))[0]

    found = attnctl.conform(attention, quick=True, dtypes=["float32"], features=["attention", "causal"])
    assert [(each.feature, each.failure.mistake) for each in found.wrong] == [("attention", "mask-unasked")]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("said", "given"),
    [
        ("q, k, v, segment_ids", "segment_ids=None"),
        ("q, k, v, table: Pages | None", "table=None"),
        ("q, k, v, table: 'Optional[Pages]', dropout_p", "dropout_p=0.0, table=None"),
        ("q, k, v, mask: Pages | None", ""),
        ("q, k, v, biases", "biases=()"),
        ("query, key_, value, *, key=None", ""),
    ],
)
def test_what_must_be_given_and_may_be_nothing_is_given_as_nothing(said, given):
    names = [part.partition(":")[0].strip() for part in said.split(",")[:3]]
    others = [part.partition(":")[0].strip() for part in said.split(",")[3:]]
    nothing = [f"not {name}" for name in others if name.isidentifier()]
    made = {"attend": attend, "Pages": np.ndarray}
    exec(
        f"def made({said}):\n    assert {' and '.join(nothing) or True}\n"
        f"    return attend({', '.join(names)}, None)[0]",
        made,
    )
    found = attnctl.conform(made["made"], quick=True, dtypes=["float32"], features=["attention"])
    assert found.agrees is True, str(found)
    assert (f"In every call: {given}." in found.notes) == bool(given)


def test_a_mask_that_cannot_be_of_truth_values_is_added():

    def attention(q, k, v, mask=None):
        if mask is not None and mask.dtype == bool:
            raise TypeError("a mask of numbers, please")
        return attend(q, k, v, None, added=0.0 if mask is None else mask)[0]

    found = attnctl.conform(attention, quick=True, dtypes=["float32"], features=["mask"])
    assert found.agrees is True, str(found)
    assert found.conventions["mask"] == "added"


# --- what sums are kept in ---


def one_by_one(weights, v):
    """A V, each product added to what is there, in the type."""
    total = np.zeros((*weights.shape[:-1], v.shape[-1]), v.dtype)
    for j in range(v.shape[-2]):
        total += weights[..., j : j + 1] * v[..., j : j + 1, :]
    return total


def summing(product):
    def attention(q, k, v):
        scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2) * q.shape[-1] ** -0.5
        return product(softmax(scores)[0].astype(q.dtype), v)

    return attention


@pytest.mark.slow
def test_sums_may_be_kept_in_the_type_unless_declared_otherwise(tmp_path):
    """As NumPy's einsum keeps those of float16."""
    claims = tmp_path / "claims.yaml"
    claims.write_text("conventions: {sums: in float32}")
    asked = {"quick": True, "dtypes": ["float32", "float16"], "features": ["attention", "conventions"]}
    found = attnctl.conform(summing(one_by_one), **asked)
    assert found.agrees is True, str(found)
    assert found.conventions["sums"] == "in the inputs' type (float16)"
    declared = attnctl.conform(summing(one_by_one), **asked, claims=claims)
    assert {(each.feature, each.dtype) for each in declared.wrong} >= {("conventions", "float16")}


def as_keys_lie(q, k, v):
    """Scores whose sums are kept in the type where keys do not lie row after row, as einsum's are."""
    product = np.matmul if k.strides[-1] == k.itemsize else one_by_one
    wide = np.float64 if product is np.matmul else q.dtype
    scores = product(q.astype(wide), k.astype(wide).swapaxes(-1, -2)).astype(np.float64)
    weights = softmax(scores * q.shape[-1] ** -0.5)[0]
    return (weights @ v.astype(np.float64)).astype(q.dtype)


@pytest.mark.parametrize("declared", ["", "in float32"])
def test_sums_may_be_kept_in_the_type_as_arrays_lie(declared, tmp_path):
    claims = tmp_path / "claims.yaml"
    claims.write_text(f"conventions: {{sums: {declared}}}" if declared else "{}")
    asked = {"quick": True, "dtypes": ["float32", "float16"], "features": ["attention", "memory layouts"]}
    found = attnctl.conform(as_keys_lie, **asked, claims=claims)
    assert found.agrees is not bool(declared), str(found)
    assert found.conventions["sums"] == "in the inputs' type, by layout (float16)"


@pytest.mark.sample(2)
@pytest.mark.parametrize("part", [0.9995, 0.996])
def test_what_is_no_loss_of_sums_is_not_taken_for_one(part):
    """A product that is smaller throughout, in float16 alone."""

    def shrunk(weights, v):
        out = one_by_one(weights.astype(float), v.astype(float))
        return (out * (part if v.dtype == np.float16 else 1)).astype(v.dtype)

    found = attnctl.conform(summing(shrunk), quick=True, dtypes=["float16"], features=["attention"])
    assert "sums" not in found.conventions


# --- the axes of what comes behind the output ---

ROWS = ("b h n", "b n h", "b h n 1", "(b h) n", "(b n) h", "n h b")


def returning(axes, make):
    def attention(q, k, v, sinks=None, scale=None):
        output, sums = attend(q, k, v, scale)
        kind = np.result_type(q.dtype, np.float32)
        scores = q.astype(kind) @ k.astype(kind).swapaxes(-1, -2) * (scale or q.shape[-1] ** -0.5)
        if sinks is not None:
            beside = np.broadcast_to(sinks.astype(kind)[:, None, None], (*scores.shape[:-1], 1))
            weights, sums = softmax(np.concatenate([scores, beside], axis=-1))
            scores = np.concatenate([scores, beside], axis=-1)
            output = (weights[..., :-1] @ v.astype(kind)).astype(q.dtype)
        return output, rearrange(make(scores, sums), f"b h n -> {axes}")

    return attention


MADE = {"logsumexp": lambda _, sums: sums, "maximum": lambda scores, _: scores.max(-1)}


@pytest.mark.sample(8)
@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize(("axes", "name"), list(product(ROWS, MADE)))
def test_the_axes_of_an_output_are_found_once(axes, name, declared):
    """Cases with as many queries as heads, and a sink in the maximum, are among them."""
    found = attnctl.conform(
        returning(axes, MADE[name]),
        quick=True,
        dtypes=["float32"],
        features=["attention", "lengths", "sinks"],
        returns=["output", name] if declared else None,
    )
    assert found.agrees is True, str(found)
    guess = f"Output 1 looks like the {'log-sum-exp' if name == 'logsumexp' else name} and is not judged"
    assert declared or found.notes[0].startswith(guess)


def test_a_declared_output_is_held_in_the_axes_that_it_has():
    """A wrong one in (batch, query, head) is named, not called misshapen."""
    found = attnctl.conform(
        returning("b n h", lambda scores, sums: sums / np.log(2)),
        quick=True,
        dtypes=["float32"],
        features=["lengths"],
        returns=["output", "logsumexp"],
    )
    assert found.features[0].failure.mistake == "lse-base"


@pytest.mark.parametrize("name", MADE)
def test_a_guess_is_reported_and_never_held_against_a_function(name):
    """What is right in plain attention and wrong wherever scores are scaled otherwise."""

    def attention(q, k, v, scale=None):
        output, _ = attend(q, k, v, scale)
        _, second = returning("b h n", MADE[name])(q, k, v)
        return output, second

    found = attnctl.conform(attention, quick=True, dtypes=["float32"], features=["attention", "scale"])
    assert found.agrees is True, str(found)
    assert "is not judged" in found.notes[0]
