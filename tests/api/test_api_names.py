"""What Python users see of attnctl: its verbs, their keywords, and what a trace can do."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import attnctl
from attnctl.base.rooms import all_verbs
from attnctl.options import ArrayOptions, Options

SOURCE = Path(attnctl.__file__)
SENTENCE = "I love AI"


def test_dir_shows_the_verbs_and_no_modules():
    assert dir(attnctl) == sorted(attnctl.__all__)
    names = [name for name in dir(attnctl) if name != "__version__"]
    assert all(callable(getattr(attnctl, name)) for name in names)
    assert {name for name in names if inspect.isclass(getattr(attnctl, name))} == {"Trace", "AttnError"}


def test_type_checkers_know_every_name():
    imports = re.findall(r"^    from attnctl\.(\S+) import (\w+) as \2$", SOURCE.read_text(), re.MULTILINE)
    homes = {verb.name: verb.function for verb in all_verbs().values() if verb.function}
    homes |= {name: f"{module}:{name}" for name, module in attnctl.BESIDE_VERBS.items()}
    assert {name: f"attnctl.{module}:{name}" for module, name in imports} == homes


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "module",
    [
        "verbs.check",
        "verbs.conform",
        "verbs.diff",
        "verbs.explain",
        "verbs.stats",
        "math.engine.cost",
    ],
)
def test_a_module_of_the_same_name_does_not_hide_a_verb(module):
    verb = module.split(".")[-1]
    code = f"import attnctl.{module}, attnctl; print(attnctl.{verb}.__module__)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "attnctl.api\n"


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        (attnctl.run, Options), (attnctl.run_many, Options), (attnctl.explain, Options),
        (attnctl.check, Options), (attnctl.corpus, Options), (attnctl.attend, ArrayOptions),
        (attnctl.cost, ArrayOptions),
    ],
)  # fmt: skip
def test_a_signature_spells_out_every_option_with_its_type(verb, options):
    parameters = inspect.signature(verb).parameters
    assert "options" not in parameters
    for name in options.__annotations__:
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[name].default is None
        assert parameters[name].annotation.endswith("| None")


TYPED = """
import attnctl
trace = attnctl.run("I love AI", heads=2, causal=True, window=(3, 0), dtype="float32")
attnctl.attend(trace, layout="hnd", causal_offset="lengths")
attnctl.check(trace, heads=2).agrees
trace.save("x.json")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "wrong"),
    [("", None), ("attnctl.run('a', head=2)", "head"), ("attnctl.run('a', heads='2')", "heads")],
)
def test_type_checkers_know_the_options(tmp_path, line, wrong):
    script = tmp_path / "script.py"
    script.write_text(TYPED + line)
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == (wrong is not None), done.stdout
    assert wrong is None or f'"{wrong}"' in done.stdout


WRONG = [
    ({"head": 2}, "head: no such option; did you mean heads?"),
    ({"colour": "red"}, "colour: no such option; there are context, vocab,"),
    ({"layout": "nd"}, "layout: no such option"),
    ({"heads": "2"}, 'heads: "2" is not a whole number but text'),
    ({"seed": -1}, "seed: -1 is too small; write 0 or more"),
    ({"window": "x"}, 'window: "x" is not'),
    ({"max_memory": "8G"}, 'max_memory: "8G" is not a whole number'),
    ({"dtype": np.int32}, "dtype: "),
    ({"keep": []}, "keep: no step"),
    ({"keep": "scores"}, "keep: a text; write a list of steps, like ['scores']"),
    ({"sentence": 42}, "sentence: 42 is not text"),
    ({"causal_offset": "lengths"}, "causal_offset: a sentence comes without key_lengths"),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=[message[:20] for _, message in WRONG])
def test_a_wrong_option_is_named(options, message):
    with pytest.raises(attnctl.AttnError) as caught:
        attnctl.run(**{"sentence": SENTENCE, **options})
    (problem,) = caught.value.problems
    assert problem.startswith(message)


def test_wrong_options_are_named_together():
    with pytest.raises(attnctl.AttnError) as caught:
        attnctl.run(SENTENCE, head=2, seed=-1)
    assert len(caught.value.problems) == 2


def test_what_is_none_stays_as_it_is():
    assert attnctl.run(SENTENCE, heads=None, causal=None, window=3).config["heads"] == 1


def test_types_of_numpy_are_named_by_themselves():
    assert attnctl.run(SENTENCE, dtype=np.float32)["scores"].dtype == np.float32
    assert attnctl.run(SENTENCE, dtype=np.dtype("float16"))["scores"].dtype == np.float16


class Bfloat16:
    """As torch has it: NumPy cannot take it, `float` gives what it can."""

    dtype = "torch.bfloat16"

    def __array__(self, *args, **more):
        raise TypeError("Got unsupported ScalarType BFloat16")

    def float(self):
        return np.ones((2, 2), np.float32)


class Elsewhere(Bfloat16):
    """A tensor that NumPy cannot reach."""

    dtype = "torch.float32"


def test_bfloat16_of_torch_is_read_as_the_float32_that_holds_it():
    trace = attnctl.attend(dict.fromkeys("QKV", Bfloat16()))
    assert trace["attention_weights"].tolist() == [[[0.5, 0.5], [0.5, 0.5]]]


def test_an_array_that_numpy_cannot_take_is_named():
    with pytest.raises(attnctl.AttnError, match=r"Q: Got unsupported .*; give a NumPy array"):
        attnctl.attend({"Q": Elsewhere(), "K": np.ones((2, 2)), "V": np.ones((2, 2))})


# --- traces ---


@pytest.fixture
def trace():
    return attnctl.run(SENTENCE, heads=2, causal=True)


def test_what_a_prompt_shows_of_a_trace_is_two_lines(trace):
    assert repr(trace) == f"<Trace: 'I love AI', 2 heads, float64, 16 steps>\n{' '.join(trace)}"
    assert len(repr(attnctl.run("word " * 500)).splitlines()[0]) < 120


@pytest.mark.parametrize("suffix", [".json", ".npz", ".safetensors"])
def test_a_saved_trace_loads_as_the_same(trace, tmp_path, suffix):
    trace.save(tmp_path / f"x{suffix}")
    loaded = attnctl.load(tmp_path / f"x{suffix}")
    assert isinstance(loaded, attnctl.Trace)
    assert loaded.header["config"] == trace.config
    assert all(loaded[name].tobytes() == trace[name].tobytes() for name in trace)


def test_every_verb_gives_a_trace_with_its_methods(trace):
    traces = [attnctl.attend(trace), *attnctl.run_many(["a b", "c"]), trace.select(["scores"])]
    assert all(isinstance(each, attnctl.Trace) for each in traces)


def test_an_explanation_reads_as_the_arithmetic(trace):
    text = str(trace.explain("attention_weights[0,I,I]"))
    assert text.splitlines()[0] == "attention_weights[0,I,I] = softmax over keys"
    assert text.splitlines()[-1] == "  = 1.0"
    assert attnctl.explain(trace, "attention_weights[0,I,I]").value == 1.0


def test_a_table_is_the_one_that_run_prints(trace, capsys):
    rich = pytest.importorskip("rich")
    assert "│ love │ 0.7844  0.2156  0.0000 │" in str(trace.table("attention_weights", heads=[0]))
    rich.print(trace.table("attention_weights"))
    assert "0.7844" in capsys.readouterr().out
    with pytest.raises(attnctl.AttnError, match="no step 'nope'"):
        trace.table("nope")


def test_stats_and_cost_are_those_of_the_shell(trace):
    assert attnctl.stats(trace).heads[0].tallies["first"].rows == 3
    costs = {each.name: each for each in attnctl.cost(SENTENCE, heads=2)}
    assert (costs["scores"].shape, costs["scores"].bytes) == ((2, 3, 3), 8 * 18)
    arrays = dict.fromkeys("QKV", np.ones((4, 8)))
    assert {each.name for each in attnctl.cost(arrays, layout="nd")} >= {"scores", "head_outputs"}


def test_a_data_frame_has_a_row_for_each_number(trace):
    pytest.importorskip("pandas")
    frame = trace.to_dataframe()
    assert list(frame) == ["step", "head", "row", "column", "value"]
    assert len(frame) == sum(array.size for array in trace.values())
    cell = frame.query("step == 'attention_weights' and head == 1 and row == 'AI' and column == 'love'")
    assert cell["value"].item() == trace["attention_weights"][1, 2, 1]
    assert frame.query("step == 'X'")["head"].isna().all()


def test_without_pandas_a_data_frame_says_what_is_missing(trace, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(attnctl.AttnError, match="pip install pandas"):
        trace.to_dataframe()
