"""Right programs are never accused and wrong ones never agree, whatever the type and the size."""

import io
import json

import numpy as np
import programs
import pytest
from check_foreign import foreign

import attnctl
from attnctl.cli.program import program
from attnctl.inputs.config.settings import Settings
from attnctl.math.rules import Causal

MEANT = Settings(heads=programs.HEADS, rules=(Causal(),))

QUICK = [
    (dtype, 64, "only the output", case)
    for dtype in ("float16", "bfloat16")
    for case in ("rounded at the end", "online softmax")
]
QUICK += [("float16", 64, "only the output", "noise of 1 %")]
QUICK += [("bfloat16", 64, "only the output", "Q and K exchanged")]
QUICK += [("float32", 64, "ends", "TF32"), ("float32", 64, "Q K V", "TF32, cut")]


def cases(kinds):
    """Every type, size, choice of records and program; at larger sizes each program with one choice."""
    for i, dtype in enumerate(programs.DTYPES):
        for d_model in programs.D_MODELS:
            for j, what in enumerate(programs.RECORDED):
                for k, case in enumerate(kinds):
                    if d_model > 64 and (i + k + d_model // 256) % len(programs.RECORDED) != j:
                        continue
                    values = (dtype, d_model, what, case)
                    marks = () if values in QUICK else (pytest.mark.slow,)
                    yield pytest.param(*values, marks=marks, id="-".join(map(str, values)))


def checked(dtype, d_model, what, case):
    """The report on one program, of which this much is recorded."""
    steps = {**programs.RIGHT, **programs.WRONG}[case](programs.inputs(dtype, d_model), dtype)
    return attnctl.check(foreign(programs.recorded(steps, what)), MEANT)


@pytest.mark.parametrize("size", [64, pytest.param(256, marks=pytest.mark.slow)])
def test_zeros_do_not_agree(tmp_path, size):
    rng, half = np.random.default_rng(0), np.float16
    drawn = {w: rng.standard_normal((size, size)) / size**0.5 for w in ("W_Q", "W_K", "W_V", "W_O")}
    arrays = {w: each.astype(half) for w, each in drawn.items()}
    arrays |= {"X": rng.standard_normal((size // 4, size)).astype(half)}
    arrays |= {"output": np.zeros((size // 4, size), half)}
    np.savez(tmp_path / "z.npz", **arrays)
    out = io.StringIO()
    code = program(["check", str(tmp_path / "z.npz"), "--heads", "8", "--causal", "--json"], stdout=out)
    found = json.loads(out.getvalue())
    assert (code, found["agrees"], found["first"]) == (1, False, "output")
    assert 0 < found["steps"]["output"]["allowed"] < 0.02


@pytest.mark.parametrize(("dtype", "d_model", "what", "case"), list(cases(programs.RIGHT)))
def test_a_right_program_is_never_accused(dtype, d_model, what, case, planted_table):
    report = checked(dtype, d_model, what, case)
    planted_table.setdefault(f"right, {dtype}", []).append(str(report.agrees))
    assert report.agrees is not False
    assert not report.findings


@pytest.mark.sample(3)
@pytest.mark.thinned(
    3, "what", "d_model"
)  # each program in each type, with a size and a choice of records in three
@pytest.mark.parametrize(("dtype", "d_model", "what", "case"), list(cases(programs.WRONG)))
def test_a_wrong_program_never_agrees(dtype, d_model, what, case, planted_table):
    report = checked(dtype, d_model, what, case)
    planted_table.setdefault(f"{case}, {dtype}", []).append(str(report.agrees))
    assert report.agrees is not True


def test_tf32_is_recognised_and_said():
    report = checked("float32", 64, "everything", "TF32")
    assert (report.agrees, report.mistake) == (True, None)
    assert "TF32" in report.notes[0]
    assert checked("float32", 64, "everything", "blocked").notes == ()


def blurred_dump():
    """A run in bfloat16 with scores so large that their rounding decides which key is seen."""
    given = programs.inputs("bfloat16", 64)
    given = {name: x * 8 if name in {"W_Q", "W_K"} else x for name, x in given.items()}
    return programs.program(given, "bfloat16")


@pytest.mark.slow
def test_what_rounding_blurs_is_neither_right_nor_wrong():
    steps = blurred_dump()
    report = attnctl.check(foreign(programs.recorded(steps, "only the output")), MEANT)
    assert (report.agrees, report.steps["output"].verdict.value) == (None, "cannot tell")
    (untold,) = report.cannot_tell
    assert (untold.step, untold.record) == ("output", ("Q", "K", "V"))
    wrong = {**steps, "output": np.zeros_like(steps["output"])}
    assert attnctl.check(foreign(programs.recorded(wrong, "only the output")), MEANT).agrees is not True


def test_what_rounding_blurs_is_measured_by_how_far_numbers_vary():
    """Values of 1000 and a little: float16 has a number for each, and for two hardly another."""
    q, k, v = np.random.default_rng(0).normal(size=(3, 6, 4)).astype(np.float16)
    v += np.float16(1000)
    scores = q @ k.T / np.float16(2)
    weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    steps = {"Q": q, "K": k, "V": v, "attention_weights": weights, "head_outputs": weights @ v}
    report = attnctl.check(steps)
    assert (report.agrees, [each.step for each in report.cannot_tell]) == (None, ["head_outputs"])


def a_little_off(name, change, *marks):
    return pytest.param(change, id=name, marks=marks)


@pytest.mark.parametrize(
    "change",
    [
        a_little_off("V times 1.001", lambda steps: {"V": steps["V"] * np.float32(1.001)}),
        a_little_off(
            "a soft cap",
            lambda steps: {"scores": np.float32(20) * np.tanh(steps["scores"] / np.float32(20))},
            pytest.mark.slow,
        ),
        a_little_off(
            "K in int8", lambda steps: {"K": np.round(steps["K"] * 40) / np.float32(40)}, pytest.mark.slow
        ),
        a_little_off(
            "noise",
            lambda steps: {
                "attention_weights": steps["attention_weights"]
                + np.random.default_rng(0)
                .normal(0, 1e-4, steps["attention_weights"].shape)
                .astype(np.float32)
            },
            pytest.mark.slow,
        ),
        a_little_off(
            "an epsilon",
            lambda steps: {"attention_weights": steps["attention_weights"] / np.float32(1.002)},
            pytest.mark.slow,
        ),
    ],
)
def test_what_is_off_a_little_is_not_low_precision(change):
    steps = programs.program(programs.inputs("float32", 64, n=16), "float32")
    for names in (("Q", "K", "V", "scores", "attention_weights"), ("X", "W_Q", "W_K", "W_V")):
        kept = {name: steps[name] for name in (*names, *programs.INPUTS)}
        report = attnctl.check(foreign({**kept, **change(steps)}), MEANT)
        assert report.agrees is False
        assert report.mistake != "low-precision"
        assert report.notes == ()


def test_a_bias_is_no_factor_of_a_product_in_tf32():
    given, b = programs.inputs("float32", 64), np.linspace(-1, 1, 64, dtype=np.float32)
    x, w = given["X"] * np.float32(0.01), given["W_Q"]
    q = programs.split(programs.tf32(x, w) + b)
    assert attnctl.check(foreign({"X": x, "W_Q": w, "b_Q": b, "Q": q}), MEANT).agrees
