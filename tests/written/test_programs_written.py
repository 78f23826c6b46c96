"""Runs as programs: each is carried out, prints what the run has, and check finds that it agrees."""

import contextlib
import io
import json
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import attnctl
from attnctl.drawing.screen.text import visible
from attnctl.drawing.show import View
from attnctl.drawing.show.program.libraries import LIBRARIES
from attnctl.drawing.show.program.ops import WRITERS
from attnctl.drawing.show.program.text import FEW, write_program
from attnctl.inputs.config.flags import changes_of
from attnctl.inputs.config.load import load
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.plan.intended import settings_of
from attnctl.math.names import is_gradient, result_in
from attnctl.math.ops import Given, Unstated
from attnctl.math.ops.base import OPS
from attnctl.store.source import read

ROOT = Path(__file__).parent.parent.parent
SENTENCE = "the cat sat on the mat"

SENTENCES = {
    "plain": {},
    "groups": {"heads": 4, "kv_heads": 2, "d_model": 8, "causal": True},
    "chunks": {"chunks": 2, "causal": True},
    "ranges": {"chunks": [(0, 1), (1, 4), (4, 6)]},
    "logsumexp": {"logsumexp": True},
    "rope": {"positions": "rope", "heads": 2, "d_model": 8},
    "alibi": {"positions": "alibi", "heads": 3, "d_model": 6},
    "softcap": {"softcap": 2.0},
    "window": {"window": (1, 1)},
    "documents": {"documents": [0, 2, 4], "positions": "rope"},
    "sinusoidal": {"positions": "sinusoidal"},
    "gate": {"gate": True},
    "rms": {"qk_norm": "rms"},
    "layer-norm": {"qk_norm": "layer"},
    "temperature": {"temperature": (0.1, 1, 0)},
    "blocks": {"block_local": 2},
    "either": {"rules": ["causal", {"any_of": [{"window": [1, 0]}, {"block_local": 2}]}]},
    "context": {"context": "I love AI"},
    "scale": {"scale": 0.3},
    "edited": {"edits": ["scores[0,cat,sat]=1"]},
    "blind": {"rules": [{"mask": [[0] * 6] + [[1] * 6] * 5}]},
    "single": {"dtype": "float32"},
}


def arrays():
    drawn = np.random.RandomState(0).standard_normal
    qkv = {"Q": drawn((2, 4, 5, 6)), "K": drawn((2, 2, 7, 6)), "V": drawn((2, 2, 7, 3))}
    matrices = {f"W_{name}": drawn((8, 8)) for name in "QKVO"} | {f"b_{name}": drawn(8) for name in "QKVO"}
    yield "batch", qkv, {"causal": True}
    yield "sink", qkv | {"sink": drawn(4)}, {}
    yield "bias", qkv | {"bias": drawn((4, 5, 7))}, {}
    yield "mask", qkv | {"mask": drawn((2, 1, 5, 7)) > 0}, {}
    yield "lengths", qkv | {"key_lengths": np.array([7, 3])}, {"causal": True}
    past = {"past_key": drawn((2, 2, 3, 6)), "past_value": drawn((2, 2, 3, 3))}
    yield "past", qkv | past, {"causal": True, "positions": "rope"}
    yield "chunked-sink", qkv | {"sink": drawn(4)}, {"chunks": 3}
    yield "projections", {"X": drawn((2, 5, 8)), **matrices}, {"heads": 2}
    short = {name: array[:, :, :5] for name, array in qkv.items()}
    places = np.array([[0, 1, 5, 6, 7], [0, 1, 2, 3, 9]])
    yield "places", short | {"position_ids": places}, {"positions": "rope"}
    weights = {"Q_norm_weight": drawn(6), "K_norm_weight": drawn(6)}
    yield "norms", qkv | weights, {"qk_norm": "rms"}
    yield "stored", qkv | {"k_scale": drawn(2), "v_scale": drawn(2)}, {}
    yield "offset", qkv, {"causal_offset": 2, "causal": True, "window": (2, 0)}


@cache
def traces():
    """Every trace that is written as a program, by its name."""
    found = {}
    for path in sorted((ROOT / "samples" / "variants").glob("*.json")):
        found[path.stem] = read(path)[0]
    for path in sorted((ROOT / "configs").glob("*.yaml")):
        if path.stem != "base-transformer":
            found[path.stem] = attnctl.run(settings=load(path))
            found[f"{path.stem} backward"] = attnctl.run(settings=load(path), backward=True)
    for name, settings in SENTENCES.items():
        found[f"run {name}"] = attnctl.run(SENTENCE, **settings)
        if name not in {"edited", "ranges"}:
            found[f"run {name} backward"] = attnctl.run(SENTENCE, backward=True, **settings)
    for name, given, settings in arrays():
        for backward in (False, True):
            trace = attnctl.attend(given, backward=backward, **settings)
            found[f"attend {name}{' backward' * backward}"] = trace
    return found


def text_of(trace, library, **view):
    stream = io.StringIO()
    write_program(trace, stream, LIBRARIES[library], View(**view))
    return stream.getvalue()


def printed_by(text, alone):
    """What a program prints, by the step; what is printed `alone` has no name there."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.filterwarnings("ignore", "(divide|invalid)")  # of rows that see nothing
        exec(compile(text, "program", "exec"), {"__name__": "program"})
    for line in out.getvalue().splitlines():
        name, _, numbers = ("", "", line) if line.startswith("[") else line.partition(" ")
        yield name or alone, np.array(json.loads(numbers))


def hold_to_run(trace, library):
    close = 1e-12 if trace.config.get("dtype", "float64") == "float64" else 2e-3
    names = []
    for name, found in printed_by(text_of(trace, library), result_in(trace)[0]):
        right = trace[name]
        assert found.shape == right.shape, name
        np.testing.assert_allclose(found, right, rtol=close, atol=close, err_msg=name)
        names.append(name)
    return names


@pytest.mark.parametrize("library", ["numpy", "einsum"])
def test_every_program_prints_what_the_run_has(library):
    assert len(traces()) > 90
    for name, trace in traces().items():
        names = hold_to_run(trace, library)
        goes_back = any(map(is_gradient, trace))
        assert any(map(is_gradient, names)) == goes_back, name


@pytest.mark.slow
@pytest.mark.parametrize("library", ["torch", "jax"])
def test_every_program_of_a_library_prints_what_the_run_has(library):
    pytest.importorskip(library)
    before = restore_torch(library)
    for trace in traces().values():
        hold_to_run(trace, library)
    before()


def restore_torch(library):
    """What puts the types of numbers back that a program chooses."""
    if library == "torch":
        import torch

        kind = torch.get_default_dtype()
        return lambda: torch.set_default_dtype(kind)
    import jax

    wide = jax.config.read("jax_enable_x64")
    return lambda: jax.config.update("jax_enable_x64", wide)


def test_a_program_of_torch_prints_what_the_run_has():
    pytest.importorskip("torch")
    before = restore_torch("torch")
    for name in ("run groups", "run rope backward", "attend mask", "run chunks"):
        hold_to_run(traces()[name], "torch")
    before()


UNWRITTEN = {"BucketsBack", "LookUpBack", "Scatter", "Convolve", "LogDecay", "Fade", "Write"}
UNWRITTEN |= {"MixTokens", "StepSize", "ScaleTokens", "AddSkipped", "Multiply", "NormInGroups"}
UNWRITTEN |= {"WithDistances", "AddByDistance"}
"""Ops that no line is written for yet: on the way back, of layers that do not attend, and of distances."""


def test_every_op_is_written_or_refused():
    written = {kind.__name__ for kind in WRITERS}
    assert set(OPS) - written == UNWRITTEN | {Given.__name__, Unstated.__name__}, (
        "write it, or list it here"
    )
    ran = {type(step.op).__name__ for trace in traces().values() for step in trace.steps.values()}
    of_models = {
        "AddScaled",
        "Buckets",
        "LookUp",
        "ScaleColumns",
        "SumProducts",
        "Beside",
        "OwnColumns",
        "SharedColumns",
    }
    of_models |= {"Sigmoid", "SwishGate", "RemainderBack", "LogSumExpBack"}
    assert written - ran <= of_models


OF_MODELS = [
    ("AddScaled", [(3, 4), (3, 4)], {"factor": 0.5}),
    ("Buckets", [(2, 5, 5), (2, 8)], {}),
    ("LookUp", [(2, 4)], {"index": ((0, 1, 3), (2, 3, 0))}),
    ("ScaleColumns", [(3, 4), (4,)], {}),
    ("SumProducts", [(3, 4), (3, 4)], {}),
    ("Beside", [(2, 3, 4), (3, 2)], {}),
    ("OwnColumns", [(2, 3, 6), (2, 3, 4)], {}),
    ("SharedColumns", [(2, 3, 6), (3, 2)], {}),
    ("Sigmoid", [(3, 4)], {}),
    ("SwishGate", [(3, 4), (3, 4)], {}),
    ("RemainderBack", [(2, 3), (2, 3, 4)], {}),
    ("LogSumExpBack", [(2, 3, 4), (2, 3), (2, 3)], {}),
]
"""Ops that no run above has: their shapes, and what they are made with."""


@pytest.mark.parametrize(("name", "inputs", "op"), OF_MODELS)
def test_ops_of_models_are_written_as_they_compute(name, inputs, op):
    from attnctl.math.derivation import Step
    from attnctl.record import Trace

    drawn = np.random.RandomState(1).standard_normal
    own = OPS[name](**op)
    given = {f"in_{at}": drawn(shape) for at, shape in enumerate(inputs)}
    right = own.apply(*given.values())

    def axes(array):
        return tuple("wxyz"[-array.ndim :]) if array.ndim else ()

    steps = {each: Step(each, Given(), (), axes(array), "given", each) for each, array in given.items()}
    steps["out"] = Step("out", own, tuple(given), axes(right), "made", "out")
    trace = Trace(steps, {**given, "out": right}, {"config": {}})
    for library in ("numpy", "einsum"):
        ((_, found),) = printed_by(text_of(trace, library, steps=("out",)), "out")
        np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-12)


def test_what_has_no_line_is_refused_by_name():
    drawn = np.random.RandomState(0).standard_normal
    pages = {"Q": drawn((2, 1, 3, 4)), "key_pages": drawn((2, 4, 1, 4)), "value_pages": drawn((2, 4, 1, 4))}
    table = {"page_table": np.array([[0, 1], [1, 0]]), "key_lengths": np.array([6, 3])}
    hold_to_run(attnctl.attend(pages | table), "numpy")
    with pytest.raises(attnctl.AttnError, match="d_key_pages: a program has no line for Scatter yet"):
        text_of(attnctl.attend(pages | table, backward=True), "numpy")


# --- what is written ---


def test_a_program_reads_as_a_lecture_has_it():
    text = text_of(attnctl.run("I love AI", heads=2, causal=True), "numpy")
    assert "attnctl" not in text
    lines = text.splitlines()
    assert lines[0] == "# I love AI"
    body = lines[lines.index("X = embeddings  # embeddings: (token, d_model)") :]
    assert len(body) < 30
    for line in (
        "Q = X @ W_Q  # X W_Q: (head, query, d_k)",
        "scores = Q @ K.swapaxes(-1, -2)  # Q Kᵀ: (head, query, key)",
        "scaled_scores = scores / np.sqrt(2)  # scores / √d_k: (head, query, key)",
        "seen = key <= query",
        "masked_scores = np.where(seen, scaled_scores, -np.inf)",
        "output = concat @ W_O  # concat W_O: (query, d_model)",
    ):
        assert line in body


def test_einsums_have_the_letters_of_their_axes():
    text = text_of(attnctl.run("I love AI", heads=2), "einsum")
    assert 'Q = np.einsum("nm,hmd->hqd", X, W_Q)' not in text
    assert 'Q = np.einsum("nm,hmd->hnd", X, W_Q)' in text
    assert 'scores = np.einsum("hqd,hkd->hqk", Q, K)' in text
    assert 'head_outputs = np.einsum("hqk,hkv->hqv", attention_weights, V)' in text


def test_only_the_steps_that_are_asked_for_are_made():
    trace = attnctl.run("I love AI", heads=2)
    text = text_of(trace, "numpy", steps=("scores",))
    assert "W_V" not in text
    assert "softmax" not in text
    ((_, found),) = printed_by(text, "scores")
    np.testing.assert_allclose(found, trace["scores"], rtol=1e-12)


@pytest.mark.parametrize("token", ['"""', "\\", "\n", "😀", "# a", "'''"])
def test_no_token_gets_out_of_its_comment(token):
    trace = attnctl.run(f"a {token} b", tokenizer={"split": "characters"})
    assert visible(token) in text_of(trace, "numpy")
    hold_to_run(trace, "numpy")


# --- files ---


def test_few_numbers_stand_in_the_program_and_many_beside_it(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("run", "I love AI", "-o", "small.py").code == 0
    assert not Path("small.npz").exists()
    assert call("run", "I love AI", "--d-model", "32", "--as", "einsum", "-o", "large.py").code == 0
    assert "np.einsum" in Path("large.py").read_text()
    with np.load("large.npz") as given:
        assert sum(given[name].size for name in given) > FEW
    other = tmp_path / "elsewhere"
    other.mkdir()
    done = subprocess.run([sys.executable, "../large.py"], cwd=other, capture_output=True, check=True)
    right = attnctl.run("I love AI", d_model=32)["output"]
    np.testing.assert_allclose(json.loads(done.stdout), right, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["I love AI", "--as", "numpy", "--precision", "2"], "--precision: a program has every digit"),
        (["I love AI", "--as", "numpy", "--head", "0"], "--head: a program has all heads"),
        (["I love AI", "-o", "a.py", "--log"], "--log"),
        (["I love", "you", "--as", "numpy"], "a program is of one trace, not of 2; name one sentence"),
        (["I love AI", "--d-model", "64", "--as", "numpy"], "with -o run.py they are written to run.npz"),
    ],
)
def test_what_a_program_cannot_have_is_refused(call, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    done = call("run", *words)
    assert done.code == 2
    assert message in done.err
    assert done.out == ""
    assert list(tmp_path.iterdir()) == []


# --- check agrees ---

OF_ATTENTION = {
    "scale", "positions", "qk_norm", "gate", "temperature", "causal_offset", "causal", "window", "softcap",
    "block_local", "documents", "any_of", "all_of",
}  # fmt: skip

UNREAD = {
    "temperature": "the factor of Q is not followed",
    "run temperature": "the same",
    "gradients-by-hand": "one of its products is taken for an attention",
    "run chunks": "no softmax over whole rows",
    "run ranges": "the same",
    "attend chunked-sink": "the same",
    "run edited": "scores that are given come from no product",
    "run blind": "a row that sees nothing",
    "attend lengths": "an offset for each member has no flag",
}
"""Programs that check does not judge as right yet, and what it does not see; none has a wrong number."""


def flags_of(trace):
    changes = changes_of(settings_of(trace), Settings())
    return [word for change in changes if change.keyword in OF_ATTENTION for word in change.flags]


def agrees(call, trace, library, tmp_path):
    """True where check finds a program right, of itself or by what the run was asked for."""
    path = tmp_path / "program.py"
    write_program(trace, path, LIBRARIES[library], View())
    alone = call("check", str(path), "--quiet").code == 0
    return alone or call("check", str(path), "--quiet", *flags_of(trace)).code == 0


@pytest.mark.slow
def test_check_agrees_with_a_program(call, tmp_path):
    assert agrees(call, traces()["grouped-query"], "numpy", tmp_path)
    text = (tmp_path / "program.py").read_text()
    (tmp_path / "program.py").write_text(text.replace("/ np.sqrt(", "/ ("))
    assert call("check", str(tmp_path / "program.py"), "--quiet").code == 1


@pytest.mark.slow
def test_check_agrees_with_forty_programs(call, tmp_path):
    judged = {name for name in traces() if "backward" not in name} - set(UNREAD)
    assert len(judged) >= 40
    assert {name for name in judged if not agrees(call, traces()[name], "numpy", tmp_path)} == set()


@pytest.mark.slow
@pytest.mark.parametrize("library", ["torch", "jax", "einsum"])
def test_check_agrees_with_programs_of_each_library(call, tmp_path, library):
    if library != "einsum":
        pytest.importorskip(library)
    for name in ("grouped-query", "cross", "softcap", "run rope", "attend mask", "attend batch"):
        assert agrees(call, traces()[name], library, tmp_path), name


@pytest.mark.parametrize("name", ["gpt2", "deepseek_v2", "gemma2"])
def test_a_layer_of_a_model_is_a_program(call, name):
    folder = str(ROOT / "tests" / "models" / "checkpoints" / name)
    words = ("run", "--model", folder, "--layer", "0", "--ids", "4,5,6")
    assert call(*words, "-o", "layer.py", "-o", "layer.json").code == 0
    done = subprocess.run([sys.executable, "layer.py"], capture_output=True, check=True)
    right = attnctl.load("layer.json")["output"]
    np.testing.assert_allclose(json.loads(done.stdout), right, rtol=1e-4, atol=1e-5)  # float32


def test_a_layer_that_no_line_is_written_for_is_refused(call):
    folder = str(ROOT / "tests" / "models" / "checkpoints" / "qwen3_next")
    done = call("run", "--model", folder, "--layer", "0", "--ids", "4,5,6", "-o", "layer.py")
    assert done.code == 2
    assert "Q_convolved: a program has no line for Convolve yet" in done.err
    assert not Path("layer.py").exists()
