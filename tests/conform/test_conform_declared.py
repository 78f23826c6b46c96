"""What a target takes: found out where it refuses the usual, or declared by options and in claims."""

from __future__ import annotations

import kernels_here as kernels
import numpy as np
import pytest
from setting_values import value_of

import attnctl
from attnctl.verbs.conform.declared import ALWAYS_FORM
from attnctl.verbs.conform.layout import in_target_axes, read_back
from attnctl.verbs.conform.options import OPTIONS
from attnctl.verbs.conform.profile import AXES, MASKS
from attnctl.verbs.conform.signature import HANDED, PARTS, THEIRS


def conform(function, *only, dtypes=("float32",), **more):
    return attnctl.conform(function, quick=True, features=only, dtypes=dtypes, **more)


def of(found, feature):
    return next(each for each in found.features if each.feature == feature)


# --- always on ---


def attends(layout="bhnd", **options):
    """attnctl's own attention with these options always on."""

    def kernel(q, k, v):
        trace = attnctl.attend({"Q": q, "K": k, "V": v}, layout=layout, dtype=q.dtype.name, **options)
        out = np.asarray(trace["head_outputs"])
        return in_target_axes(out, layout) if layout != "bhnd" else out

    return kernel


UNSEEN = {"cache_unrotated", "positions_run_on"}
"""Of a cache; and where positions start, of which nothing that looks at distances tells."""

WITH_OTHERS = {
    "heads": ({"heads": 4}, "bnd"),
    "kv_heads": ({"heads": 4, "kv_heads": 2}, "bnd"),
    "positions": ({"positions": {"rope": {"interleaved": True}}}, "bhnd"),
    "scale": ({"scale": 0.9}, "bhnd"),
    "window": ({"window": [2, 1]}, "bhnd"),
    "softcap": ({"softcap": 0.7}, "bhnd"),
    "temperature": ({"temperature": [0.5, 2]}, "bhnd"),
    "causal_offset": ({"causal": True, "causal_offset": 2}, "bhnd"),
}
"""Options that need others, a layout, or a value that shows in small cases."""

ALWAYS = WITH_OTHERS | {
    name: ({name: value_of(setting)}, "bhnd")
    for name, setting in ALWAYS_FORM.keys.items()
    if name not in WITH_OTHERS and name not in UNSEEN
}
"""Of each option a value, with the others that it needs, and a layout."""


@pytest.mark.sample(4)
@pytest.mark.usefixtures("_unexplained")
@pytest.mark.parametrize("name", ALWAYS)
def test_what_is_always_on_is_added_to_every_case(name):
    options, layout = ALWAYS[name]
    kernel = attends(layout, **options)
    found = conform(kernel, "memory layouts", always=options, layout=layout)
    assert found.agrees is True, str(found)
    rest = {each: value for each, value in options.items() if each != name}
    if layout == "bhnd":  # how many heads there are is found out
        assert conform(kernel, "memory layouts", always=rest).agrees is False


def always_causal(q, k, v):
    """One length only, as minGPT."""
    n = q.shape[2]
    s = np.where(np.tril(np.ones((n, n), dtype=bool)), kernels.scores(q, k), -np.inf)
    return kernels.softmax(s) @ v


def test_what_is_always_on_is_said_in_claims_and_in_the_report(tmp_path):
    (tmp_path / "claims.yaml").write_text("always: {causal: true, window: [3, 0]}\n")
    found = conform(attends(causal=True, window=[3, 0]), "attention", claims=tmp_path / "claims.yaml")
    assert found.agrees is True, str(found)
    assert found.notes == ("Always on: causal, window 3, 0.",)


# --- sizes ---


def blocks(q, k, v, *, head_sizes=(64, 128), block=16):
    """Head sizes and lengths as a kernel without bounds checks has them."""
    assert q.shape[-1] in head_sizes, f"head size {q.shape[-1]}"
    assert q.shape[2] % block == 0 == k.shape[2] % block, f"lengths {q.shape[2]} and {k.shape[2]}"
    return kernels.good(q, k, v)


def test_the_usual_sizes_are_tried_where_others_are_refused():
    found = conform(lambda q, k, v: blocks(q, k, v, block=16), "large scores")
    assert found.agrees is True, str(found)
    assert found.conventions == {"lengths": "multiples of 16", "head sizes": "64, 128"}


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("fixed", "found"),
    [({"batch": 1}, {"batch": "1"}), ({"n": 64}, {"queries and keys": "64"}),
     ({"n": 128, "d": 64}, {"queries and keys": "128", "head sizes": "64"})],
    ids=["one member", "one length", "one length and size"],
)  # fmt: skip
def test_a_kernel_of_one_size_is_held_in_that_size(fixed, found):
    def kernel(q, k, v):
        sizes = {"batch": len(q), "n": q.shape[2], "d": q.shape[3]}
        if any(sizes[name] != size for name, size in fixed.items()) or (
            "n" in fixed and q.shape != k.shape
        ):
            raise ValueError(f"not compiled for {sizes}")
        return kernels.good(q, k, v)

    held = conform(kernel, "large scores")
    assert held.agrees is True, str(held)
    assert held.conventions == found


@pytest.mark.usefixtures("_unexplained")
def test_a_kernel_of_one_size_that_is_wrong_is_held_to_its_outputs():
    """Weights are read off values with a column for each key: this one takes no 128 columns."""

    def kernel(q, k, v):
        if q.shape[3] != 64 or q.shape[2] % 128 or k.shape[2] % 128:
            raise ValueError("not compiled for that")
        return kernels.good(q, k, v) ** 3

    found = conform(kernel, "head sizes")
    assert found.agrees is False
    assert found.conventions == {"lengths": "multiples of 128", "head sizes": "64"}


@pytest.mark.slow
def test_what_is_wrong_of_unequal_sides_alone_is_told_how_to_leave_out():
    def of_queries_alone(q, k, v):
        n = q.shape[2]
        return kernels.good(q, k[:, :, :n], v[:, :, :n])

    found = conform(of_queries_alone, "lengths")
    assert found.wrong[0].failure.mistake == "keys-dropped"
    said = "if it is not meant for unequal numbers of queries and keys, say without: [lengths] in --claims"
    assert said in found.wrong[0].failure.explanation


@pytest.mark.sample(2)
@pytest.mark.parametrize("how", ["options", "claims"])
def test_sizes_are_declared(how, tmp_path):
    said = {"head_sizes": [24, 40], "multiple_of": 7}
    if how == "claims":
        (tmp_path / "claims.yaml").write_text("head_sizes: [24, 40]\nmultiple_of: 7\n")
        said = {"claims": tmp_path / "claims.yaml"}
    sizes = set()

    def kernel(q, k, v):
        sizes.add((q.shape[2] % 7, k.shape[2] % 7, q.shape[3]))
        return blocks(q, k, v, head_sizes=(24, 40), block=7)

    found = conform(kernel, **said)
    assert found.agrees is True, str(found)
    assert of(found, "head sizes").cases == 2
    assert sizes == {(0, 0, 24), (0, 0, 40)}


def test_what_is_refused_in_every_size_is_not_run():
    def kernel(q, k, v):
        raise ValueError("no")

    found = conform(kernel)
    assert found.agrees is None
    assert of(found, "attention").reason.startswith("every call raises ValueError: no (")


# --- unequal sides ---


def square_when_causal(q, k, v, causal=False):
    if causal and q.shape[2] != k.shape[2]:
        raise ValueError("causal: q and k must have one length")
    return kernels.good(q, k, v, causal)


def test_a_refusal_of_unequal_sides_is_no_failure_in_any_feature():
    found = conform(square_when_causal, "causal", "random", "lengths")
    assert found.agrees is True, str(found)
    why = "3 of its cases are refused: ValueError: causal: q and k must have one length"
    assert of(found, "causal").reason == why


@pytest.mark.parametrize(
    ("claims", "agrees"), [("without: [lengths]", True), ("features: [lengths]", False)]
)
def test_unequal_sides_are_claimed_or_not(claims, agrees, tmp_path):
    (tmp_path / "claims.yaml").write_text(claims)
    unequal = []

    def kernel(q, k, v, causal=False):
        unequal.append(q.shape[2] != k.shape[2])
        return square_when_causal(q, k, v, causal)

    found = conform(kernel, "causal", claims=tmp_path / "claims.yaml")
    assert found.agrees is agrees, str(found)
    assert any(unequal) is not agrees


def test_a_triangle_that_is_cut_to_one_query_is_not_asked_for_more_keys():
    """[:T, :T] of one query hides nothing, and is refused for any other number of keys."""
    found = conform(always_causal, "lengths", "large scores", always={"causal": True})
    assert found.agrees is True, str(found)
    assert of(found, "lengths").status == "skipped"


# --- layouts and masks ---


def laid(layout, heads):
    """A function in a layout; where heads stand side by side it knows how many there are, or is told."""

    def told(q, k, v, num_heads):
        if q.ndim != len(layout):
            raise ValueError(f"{q.ndim} axes")
        return in_target_axes(kernels.good(*(read_back(x, layout, num_heads) for x in (q, k, v))), layout)

    return told if heads is None else lambda q, k, v: told(q, k, v, heads)


@pytest.mark.sample(4)
@pytest.mark.parametrize("layout", AXES)
def test_layouts_are_found_out(layout):
    found = conform(laid(layout, None), "large scores")
    assert found.agrees is True, str(found)
    assert found.conventions.get("layout", "bhnd") == layout
    assert "heads" not in found.conventions


@pytest.mark.sample(2)
@pytest.mark.parametrize(("layout", "heads"), [("bnd", 4), ("nbd", 12)])
def test_how_many_heads_stand_side_by_side_is_found_out(layout, heads):
    found = conform(laid(layout, heads), "large scores")
    assert found.agrees is True, str(found)
    assert (found.conventions["layout"], found.conventions["heads"]) == (layout, str(heads))


def test_a_layout_of_the_output_is_declared_and_hinted_at():
    def kernel(q, k, v):
        return np.swapaxes(kernels.good(q, k, v), 1, 2)

    assert conform(kernel, "attention", layout="bhnd:bnhd").agrees is True
    found = conform(kernel, "attention")
    assert of(found, "attention").failure.mistake == "wrong-shape"
    assert "--layout IN:OUT says how it answers" in str(found)


@pytest.mark.usefixtures("_unexplained")
def test_what_mixes_members_up_is_not_called_right_in_arrays_of_one():
    found = conform(lambda q, k, v: kernels.good(q[::-1], k, v), "attention")
    assert found.agrees is False
    assert "layout" not in found.conventions


def masked(shape):
    """A function of a mask of this shape and no other."""

    def kernel(q, k, v, mask=None):
        s = kernels.scores(q, k)
        if mask is None:
            return kernels.softmax(s) @ v
        sizes = dict(zip("bhnm", s.shape, strict=True)) | {"1": 1}
        if mask.shape != tuple(sizes[axis] for axis in shape):
            raise ValueError(f"a mask of {mask.shape}")
        own = tuple(slice(None) if axis in shape else None for axis in "bhnm")
        seen = np.broadcast_to(mask if len(shape) == 4 else mask[own], s.shape)
        s = np.where(seen, s, -np.inf) if mask.dtype == bool else s + seen
        top = np.maximum(s.max(-1, keepdims=True), np.finfo(s.dtype).min)
        e = np.exp(s - top)
        return (e / np.maximum(e.sum(-1, keepdims=True), 1e-30) @ v).astype(q.dtype)

    return kernel


@pytest.mark.sample(3)
@pytest.mark.parametrize("shape", MASKS)
def test_the_shape_of_a_mask_is_found_out_or_declared(shape):
    found = conform(masked(shape), "mask", "float_mask")
    assert found.agrees is True, str(found)
    assert found.conventions.get("mask shape", "bhnm") == shape
    assert conform(masked(shape), "mask", mask_shape=shape).agrees is True
    other = next(each for each in MASKS if each != shape)
    assert conform(masked(shape), "mask", mask_shape=other).agrees is False


@pytest.mark.usefixtures("_unexplained")
def test_a_mask_that_is_read_in_part_is_not_called_one_of_another_shape():
    def first_head(q, k, v, mask=True):
        seen = mask if mask is True else mask[:, :1]
        return kernels.softmax(np.where(seen, kernels.scores(q, k), -np.inf)) @ v

    found = conform(first_head, "mask")
    assert found.agrees is False
    assert "mask shape" not in found.conventions


def test_a_mask_that_must_be_given_hides_nothing():
    def kernel(q, k, v, mask):
        return kernels.softmax(np.where(mask, kernels.scores(q, k), -np.inf)) @ v

    def added(q, k, v, attention_mask):
        if attention_mask.dtype == bool:
            raise TypeError("a mask of 0 and 1, please")
        return kernels.softmax(kernels.scores(q, k) + (1.0 - attention_mask) * -1e30) @ v

    assert conform(kernel, "attention", "mask").agrees is True
    found = conform(added, "attention", "mask")
    assert found.agrees is True, str(found)
    assert found.conventions["mask"] == "1 and 0"


@pytest.mark.parametrize(
    "name", ["mask", "attn_mask", pytest.param("attention_mask", marks=pytest.mark.slow)]
)
def test_a_mask_that_is_added_is_one_of_numbers_unless_it_is_said_to_be_boolean(tmp_path, name):
    scope = {"softmax": kernels.softmax, "scores": kernels.scores}
    exec(f"def added(q, k, v, {name}=0.0): return softmax(scores(q, k) + {name}) @ v", scope)
    found = conform(scope["added"], "mask")
    assert found.agrees is True, str(found)
    assert found.conventions["mask"] == "added"
    assert "a boolean one would be added as 1 and 0" in str(found)
    (tmp_path / "claims.yaml").write_text("conventions: {mask: boolean}\n")
    claimed = conform(scope["added"], "mask", claims=tmp_path / "claims.yaml")
    assert of(claimed, "mask").failure.mistake == "mask-added"
    assert "Its mask is numbers that are added" not in str(claimed)


@pytest.mark.parametrize(("name", "status"), [("mask", "skipped"), ("attn_mask", "ignored")])
def test_numbers_read_as_truth_values_are_wrong_where_their_name_says_that_they_are_added(name, status):
    scope = {"softmax": kernels.softmax, "scores": kernels.scores, "where": np.where}
    seen = f"where(True if {name} is None else {name} != 0, scores(q, k), -float('inf'))"
    exec(f"def read(q, k, v, {name}=None): return softmax({seen}) @ v", scope)
    found = conform(scope["read"], "mask", "float_mask")
    assert found.conventions["float mask"] == "read as truth values"
    assert [each.status for each in found.features] == ["passed", status]


# --- names, and types, that do not fit ---


@pytest.mark.sample(60)
@pytest.mark.parametrize("theirs", ["extra", "needed", "nothing", "query"])
@pytest.mark.parametrize("ours", [*THEIRS, *OPTIONS])
def test_a_parameter_that_is_said_to_be_anything_is_passed_it_or_refused(theirs, ours):
    """Whatever `--map` says of whatever parameter: a verdict, or an error."""

    def forward(query, key, value, extra=None):
        return kernels.good(query, key, value)

    def strict(query, key, value, needed):
        return kernels.good(query, key, value)

    try:
        found = conform(strict if theirs == "needed" else forward, "attention", names={theirs: ours})
    except attnctl.AttnError:
        pass
    else:
        assert ours not in {*HANDED, *PARTS}
        assert theirs != "query" or ours == "Q"
        assert found.features


def test_a_name_is_of_the_backward_pass_where_the_forward_has_none():
    def forward(q, k, v):
        return kernels.good(q, k, v)

    def backward(upstream, q, k, v):
        weights = kernels.softmax(kernels.scores(q, k))
        d_weights = upstream @ v.swapaxes(-1, -2)
        d_scores = weights * (d_weights - (weights * d_weights).sum(axis=-1, keepdims=True))
        d_scores /= np.sqrt(q.shape[-1])
        return d_scores @ k, d_scores.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ upstream

    named = {"upstream": "d_output"}
    assert conform(forward, "attention", backward=backward, names=named).agrees is True
    with pytest.raises(attnctl.AttnError, match="a backward pass alone is given d_output"):
        conform(forward, "attention", names=named)
    with pytest.raises(attnctl.AttnError, match="it takes no upstream"):
        conform(forward, "attention", names=named, backward=True, framework="jax")


@pytest.mark.sample(4)
@pytest.mark.usefixtures("_unexplained")
@pytest.mark.parametrize(
    "dtype", ["complex128", "object", "bool", "U32", "S8", "M8[s]", [("a", "f8")]], ids=str
)
def test_what_is_no_real_number_is_no_output(dtype):
    one = np.ones(()).astype(dtype)

    def other(q, k, v):
        return np.broadcast_to(one, (*q.shape[:-1], v.shape[-1]))

    (found,) = conform(other, "attention", dtypes=("float64",)).features
    said = "has the type bool" if dtype == "bool" else "returns no array of real numbers"
    assert (found.status, said in found.failure.words) == ("failed", True)
