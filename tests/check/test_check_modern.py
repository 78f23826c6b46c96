"""Sinks, norms of Q and K, unrotated caches: right programs are not accused, wrong ones are told."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import attnctl

HEADS, KV_HEADS, NEW, PAST, D = 4, 2, 9, 5, 8


@dataclass(frozen=True)
class Program:
    """Causal attention as someone may have written it, with a mistake where `wrong` names one."""

    sink: bool = False
    norm: str = ""
    """rms or layer."""
    eps: float = 1e-6
    factors: str = ""
    """Weights of the norms: one row, by head, or one row for all heads."""
    after: bool = False
    rope: bool = False
    past: int = 0
    unrotated: bool = False
    wrong: str = ""

    def __call__(self):
        draw = np.random.RandomState(3)
        q, k, v = (draw.standard_normal((n, NEW, D)) for n in (HEADS, KV_HEADS, KV_HEADS))
        out = {"Q": q, "K": k, "V": v}
        if self.factors:
            shapes = {"one row": lambda n: D, "by head": lambda n: (n, D), "all heads": lambda n: n * D}
            for name, n in (("Q", HEADS), ("K", KV_HEADS)):
                out[f"{name}_norm_weight"] = draw.uniform(0.5, 1.5, shapes[self.factors](n))
        if self.past:
            out["past_key"], out["past_value"] = draw.standard_normal((2, KV_HEADS, self.past, D))
        if self.sink:
            out["sink"] = draw.uniform(-1, 2, HEADS)
        q, k = self.placed(q, k, out)
        if self.past:
            v = np.concatenate([out["past_value"], v], 1)
        k, v = np.repeat(k, HEADS // KV_HEADS, 0), np.repeat(v, HEADS // KV_HEADS, 0)
        s = np.einsum("hid,hjd->hij", q, k) / np.sqrt(D)
        ahead = np.arange(k.shape[1])[None, :] > np.arange(NEW)[:, None] + self.past
        e = np.exp(np.where(ahead, -np.inf, s))
        total = e.sum(-1, keepdims=True)
        if self.sink and self.wrong != "sink-missing":
            total = total + np.exp(out["sink"])[:, None, None]
        out["attention_weights"] = e / total
        out["head_outputs"] = np.einsum("hij,hjd->hid", e / total, v)
        return out

    def placed(self, q, k, out):
        """Q and all K as the scores are made of them."""
        if self.wrong == "norm-missing":
            return replace(self, norm="", wrong="").placed(q, k, out)
        first = self.after if self.wrong == "norm-order-wrong" else not self.after
        if self.norm and first:
            q, k = self.normed(q, "Q", out), self.normed(k, "K", out)
        if self.past and self.unrotated:
            k = np.concatenate([out["past_key"], k], 1)
        if self.rope:
            q, k = turned(q, self.past), turned(k, 0 if self.unrotated else self.past)
        if self.past and not self.unrotated:
            k = np.concatenate([out["past_key"], k], 1)
        if self.norm and not first:
            q, k = self.normed(q, "Q", out), self.normed(k, "K", out)
        return q, k

    def normed(self, x, name, out):
        layer = self.norm == ("rms" if self.wrong == "norm-kind-wrong" else "layer")
        one_row = (self.factors == "all heads") != (self.wrong == "norm-over-wrong")
        row = (0, 2) if one_row else 2
        x = x - x.mean(row, keepdims=True) if layer else x
        x = x / np.sqrt((x * x).mean(row, keepdims=True) + self.eps)
        if not self.factors or self.wrong == "norm-factor-missing":
            return x
        weight = out[f"{name}_norm_weight"]
        return x * (weight if self.factors == "one row" else weight.reshape(len(x), 1, D))

    @property
    def asked(self):
        """The options that ask for it."""
        norm = {"kind": self.norm, "after_rotation": self.after, **({"eps": self.eps} if self.eps else {})}
        return {
            "causal": True,
            **({"positions": "rope"} if self.rope else {}),
            **({"qk_norm": norm} if self.norm else {}),
            **({"cache_unrotated": True} if self.unrotated else {}),
        }


def turned(x, start):
    """Half-split rotary positions, theta 10000."""
    angle = np.arange(start, start + x.shape[1])[:, None] / 10000 ** (np.arange(0, D, 2) / D)
    a, b = x[..., : D // 2], x[..., D // 2 :]
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


SINK = Program(sink=True)
RMS = Program(norm="rms", factors="one row", rope=True)
PROGRAMS = {
    "sink": SINK,
    "sink, cached": Program(sink=True, past=PAST),
    "rms": Program(norm="rms"),
    "rms, weights": RMS,
    "rms by head": replace(RMS, factors="by head"),
    "rms of all heads": replace(RMS, factors="all heads"),
    "rms after the rotation": replace(RMS, after=True),
    "rms, eps 1e-5": replace(RMS, eps=1e-3),
    "layer": Program(norm="layer", eps=1e-5, factors="one row", rope=True, sink=True),
    "layer of all heads, after": Program(
        norm="layer", eps=1e-5, factors="all heads", rope=True, after=True
    ),
    "unrotated": Program(rope=True, past=PAST, unrotated=True),
    "unrotated, rms": replace(RMS, past=PAST, unrotated=True),
    "unrotated, rms after": replace(RMS, past=PAST, unrotated=True, after=True),
    "rotated cache, rms": replace(RMS, past=PAST),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_attend_computes_it_and_check_finds_nothing_wrong(name):
    program = PROGRAMS[name]
    arrays = program()
    trace = attnctl.attend(arrays, **program.asked)
    for step in ("attention_weights", "head_outputs"):
        np.testing.assert_allclose(trace[step], arrays[step], atol=1e-12)
    report = attnctl.check(arrays, **program.asked)
    assert report.agrees, report
    assert attnctl.check(trace).agrees
    again = attnctl.attend(trace, **program.asked)
    np.testing.assert_array_equal(again["head_outputs"], trace["head_outputs"])


WRONG = [
    (SINK, "sink-missing"),
    (RMS, "norm-missing"),
    (RMS, "norm-order-wrong"),
    (replace(RMS, after=True), "norm-order-wrong"),
    (RMS, "norm-kind-wrong"),
    (RMS, "norm-factor-missing"),
    (replace(RMS, factors="by head"), "norm-over-wrong"),
]


@pytest.mark.sample(4)
@pytest.mark.parametrize(("program", "mistake"), WRONG, ids=[mistake for _, mistake in WRONG])
def test_a_mistake_in_it_is_named(program, mistake):
    report = attnctl.check(replace(program, wrong=mistake)(), **program.asked)
    assert (report.agrees, report.first, report.mistake) == (False, "attention_weights", mistake)


def test_the_other_kind_of_norm_is_known_by_its_own_epsilon_too():
    program = Program(norm="rms", eps=1e-6, factors="one row")
    arrays = program()
    arrays["Q"] = arrays["Q"] * 0.01  # so small that epsilon counts
    arrays["Q_normed"] = program.normed(arrays["Q"], "Q", arrays)
    kept = {name: arrays[name] for name in ("Q", "K", "V", "Q_norm_weight", "K_norm_weight", "Q_normed")}
    report = attnctl.check(kept, qk_norm="layer")
    assert (report.first, report.mistake) == ("Q_normed", "norm-kind-wrong")


@pytest.mark.parametrize("name", ["sinks", "s_aux", "attention_sinks"])
def test_a_sink_goes_by_other_names(name):
    arrays = SINK()
    arrays[name] = arrays.pop("sink").reshape(1, HEADS, 1, 1)
    report = attnctl.check(arrays, causal=True)
    assert (report.agrees, report.reading, report.unknown) == (True, "", ())


def test_a_sink_says_how_many_heads_there_are():
    q, k, v = np.random.RandomState(0).standard_normal((3, NEW, HEADS * D))
    trace = attnctl.attend({"Q": q, "K": k, "V": v, "sink": np.zeros(HEADS)})
    assert trace["attention_weights"].shape == (HEADS, NEW, NEW)


@pytest.mark.slow
def test_an_array_with_a_number_for_each_head_is_read_as_a_sink_before_anyone_is_accused():
    arrays = SINK()
    arrays["mystery"] = arrays.pop("sink")
    report = attnctl.check(arrays, causal=True)
    assert (report.agrees, report.reading, report.unknown) == (True, "mystery as sink", ())
    arrays["mystery"] = np.ones(HEADS)
    report = attnctl.check(arrays, causal=True)
    assert (report.agrees, report.unknown) == (False, ("mystery",))


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("rms, weights", ""),
        ("rms after the rotation", "--qk-norm rms --qk-norm-after-rotation"),
        ("layer", "--qk-norm layer"),
        ("rms of all heads", ""),
    ],
)
def test_weights_of_norms_say_that_there_are_norms(name, read):
    program = PROGRAMS[name]
    asked = {key: value for key, value in program.asked.items() if key != "qk_norm"}
    report = attnctl.check(program(), **asked)
    assert report.agrees, report
    assert report.reading.endswith(read)
    assert bool(report.reading) == bool(read)
    assert any("--qk-norm says otherwise" in note for note in report.notes) == (not read)


UNASKED = {
    "--qk-norm rms": (Program(norm="rms"), {"causal": True}),
    "--qk-norm layer": (Program(norm="layer", eps=1e-5), {"causal": True}),
    "--qk-norm layer --qk-norm-after-rotation": (
        Program(norm="layer", eps=1e-5, rope=True, after=True),
        {"causal": True, "positions": "rope"},
    ),
    "--qk-norm rms --causal": (Program(norm="rms"), {}),
    "--cache-unrotated": (PROGRAMS["unrotated"], {"causal": True, "positions": "rope"}),
}


@pytest.mark.parametrize("option", UNASKED)
def test_an_option_that_nobody_asked_for_is_said(option):
    program, asked = UNASKED[option]
    report = attnctl.check(program(), **asked)
    assert (report.agrees, report.unasked) == (False, option)


# --- tokens before heads ---


def tokens_first(arrays):
    return {name: array[None].swapaxes(1, 2) for name, array in arrays.items() if array.ndim == 3}


def test_attend_finds_tokens_before_heads_where_sizes_tell():
    arrays = Program(past=PAST)()
    found = attnctl.attend(tokens_first(arrays), causal=True)
    np.testing.assert_allclose(found["head_outputs"][0], arrays["head_outputs"], atol=1e-12)
    assert found.header["notes"] == ["Read Q, K, V as (batch, n, head, d)."]


def test_a_sink_tells_how_many_heads_there_are():
    arrays = SINK()
    found = attnctl.attend({**tokens_first(arrays), "sink": arrays["sink"]}, causal=True)
    np.testing.assert_allclose(found["head_outputs"][0], arrays["head_outputs"], atol=1e-12)


def test_more_heads_than_rows_are_doubted():
    q = np.random.RandomState(0).standard_normal((1, 16, 4, 8))
    trace = attnctl.attend({"Q": q, "K": q, "V": q})
    assert trace["attention_weights"].shape == (1, 16, 4, 4)
    (note,) = trace.header["notes"]
    assert note.endswith("If they are (batch, n, head, d), write layout bnhd.")
    assert "notes" not in attnctl.attend({"Q": q, "K": q, "V": q}, layout="bhnd").header
    told = attnctl.attend({"Q": q, "K": q, "V": q}, heads=4)
    assert told["attention_weights"].shape == (1, 4, 16, 16)


# --- what cannot be meant ---

REFUSED = [
    (RMS, {}, "Q_norm_weight K_norm_weight: Q and K are normed, but how? qk_norm rms"),
    (Program(), {"cache_unrotated": True}, "cache_unrotated: there is no past_key"),
    (Program(past=PAST), {"cache_unrotated": True}, "cache_unrotated: only rotary positions turn keys"),
]


@pytest.mark.parametrize(("program", "asked", "message"), REFUSED)
def test_what_has_no_meaning_is_refused(program, asked, message):
    arrays = {name: array for name, array in program().items() if name != "attention_weights"}
    with pytest.raises(attnctl.AttnError) as caught:
        attnctl.attend(arrays, **asked)
    assert any(problem.startswith(message) for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("sink", 3, "sink: 3, expected 4 (one for each head)"),
        ("Q_norm_weight", 7, "Q_norm_weight: 7, expected 8 (d_k) or 4 × 8 (head × d_k)"),
    ],
)
def test_what_does_not_go_with_the_heads_is_refused(name, shape, message):
    arrays = {**Program()(), "K_norm_weight": np.ones(D), "Q_norm_weight": np.ones(D), name: np.ones(shape)}
    with pytest.raises(attnctl.AttnError) as caught:
        attnctl.attend(arrays, qk_norm="rms")
    assert caught.value.problems == (message,)


def test_a_sentence_has_no_cache():
    with pytest.raises(attnctl.AttnError, match="cache_unrotated: there is no past_key"):
        attnctl.run("I love AI", positions="rope", cache_unrotated=True)
