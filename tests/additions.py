"""What the recipes add, put into a copy of the package, in the files that they name, and taken everywhere.

A script: tables are read when they are imported, so it writes first and imports afterwards.
"""

import filecmp
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
RECIPES = "\n".join((ROOT / name).read_text() for name in ("CONTRIBUTING.md", "attnctl/math/README.md"))
LIST_OF_OTHERS = (ROOT / "attnctl" / "README.md").read_text().partition("## Adding anything else")[2]


def snippet(name):
    """The code block under a marker of the recipes."""
    found = re.search(rf"<!-- {name} -->\n```python\n(.*?)^```$", RECIPES, re.DOTALL | re.MULTILINE)
    return found[1]


def shell(*args, stdin=""):
    """The command line: exit code and standard output."""
    from attnctl.cli.program import program

    out, source = (io.TextIOWrapper(io.BytesIO(text.encode()), write_through=True) for text in ("", stdin))
    code = int(program(args, stdin=source, stdout=out, stderr=io.StringIO()))
    out.flush()
    return code, out.buffer.getvalue().decode()


def refusal(*args):
    """What the command line says of what it cannot carry out, in one line."""
    from attnctl.cli.program import program

    said = io.StringIO()
    assert program(args, stdin=io.StringIO(), stdout=io.StringIO(), stderr=said) == 2
    return " ".join(said.getvalue().split())


def story():
    """The story of the config that was written, in one line."""
    return " ".join(shell("run", "-c", "c.yaml", "--story")[1].split())


SENTENCE = "the cat sat on the mat"


def rule():
    """Strided attention by config, flag and keyword, and through every verb."""
    room = copied()
    rules = room / "math" / "rules"
    (rules / "strided.py").write_text(snippet("rule"))
    imported = "from attnctl.math.rules.strided import Strided\n"
    before(rules / "__init__.py", "from attnctl.math.rules.visibility", imported)
    before(rules / "__init__.py", ")\n}", ", Strided")
    assert changed(room) == recipe_files("A rule")
    import attnctl

    mask = (np.arange(6)[:, None] - np.arange(6)) % 4 == 0
    expected = attnctl.run(SENTENCE, mask=mask.tolist(), heads=2)["attention_weights"]
    by_keyword = attnctl.run(SENTENCE, strided=4, heads=2)
    Path("c.yaml").write_text(f"sentence: {SENTENCE}\nheads: 2\nrules: [{{strided: 4}}]\n")
    assert shell("run", "-c", "c.yaml", "-o", "config.json")[0] == 0
    assert shell("run", SENTENCE, "--heads", "2", "--strided", "4", "-o", "flag.npz")[0] == 0
    for trace in (by_keyword, attnctl.load("config.json"), attnctl.load("flag.npz")):
        np.testing.assert_array_equal(trace["attention_weights"], expected)
        assert trace.config["rules"] == [{"strided": 4}]

    code, schema = shell("config", "schema")
    assert code == 0
    assert "strided" in schema
    assert "--strided N" in shell("run", "--help-all")[1]
    assert "strided: 4" in shell("config", "init", "-c", "c.yaml")[1]
    code, shown = shell("show", "flag.npz")
    assert code == 0
    assert "strided 4" in shown
    assert shown.count("strided") > 8  # in the headline, and in each hidden cell
    assert "hidden by strided" in shell("explain", "config.json", "masked_scores[0,0,5]")[1]
    assert shell("check", "flag.npz")[0] == 0
    code, said = shell("check", "flag.npz", "--strided", "3")
    assert code == 1
    assert "as if it were size 4" in said
    assert shell("diff", "flag.npz", "config.json")[0] == 0
    assert shell("stats", "flag.npz", "--json")[0] == 0
    assert "sees every 4th key, counted from its own." in story()
    assert "masked_scores" in shell("run", SENTENCE, "--strided", "4", "--cost")[1]
    assert shell("run", SENTENCE, "--strided", "0")[0] == 2

    rng = np.random.RandomState(0)
    arrays = {name: rng.randn(2, 1500, 4) for name in "QKV"}
    whole = attnctl.attend(arrays, strided=37)
    tiled = attnctl.attend(arrays, strided=37, keep=["head_outputs"])
    np.testing.assert_allclose(tiled["head_outputs"], whole["head_outputs"], atol=1e-13)


def copied():
    """A copy of the package, to be changed and then imported."""
    import attnctl

    room = shutil.copytree(Path(attnctl.__file__).parent, Path.cwd() / "attnctl")
    for name in [name for name in sys.modules if name.split(".")[0] == "attnctl"]:
        del sys.modules[name]
    sys.path.insert(0, str(Path.cwd()))
    return room


def changed(room):
    """The files of a copy that are new, or are not what the package has."""
    original = ROOT / "attnctl"
    files = set()
    for path in room.rglob("*.py"):
        name = path.relative_to(room)
        if not (original / name).exists() or not filecmp.cmp(path, original / name, shallow=False):
            files.add(name.as_posix())
    return files


def recipe_files(title):
    """The files of the package that the first paragraph of a recipe names."""
    paragraph = RECIPES.partition(f"### {title}")[2].split("\n\n")[1]
    return set(re.findall(r"`attnctl/(\S+\.py)`", paragraph))


def hold_to_row(room, what):
    """Hold what was written to the place that the list of additions gives: two files at most."""
    row = next(line for line in LIST_OF_OTHERS.splitlines() if line.startswith(f"| {what} |"))
    place = row.split("|")[3]
    named = set(re.findall(r"\]\((\S+?)\)", place))
    folders = {Path(link).parent for link in re.findall(r"a file of \[\S+?\]\((\S+?)\)", place)}
    files = changed(room)
    assert 1 <= len(files) <= 2
    for name in files:
        assert name in named or Path(name).parent in folders, (name, place)


def with_step():
    """The package with the step of the recipes in four of its files."""
    room = copied()
    (room / "math" / "ops" / "sharpen.py").write_text(snippet("op"))
    field = 'sharpen: float | None = field(default=None, metadata={"setting": SHARPEN})'
    assert field in RECIPES
    before(room / "math" / "names.py", '    vectors("Q_rotated"', f"    {snippet('row').strip()},\n")
    before(room / "math" / "derivation.py", "def norms(", snippet("lines") + "\n\n")
    before(room / "math" / "derivation.py", "    norms,\n", "    sharpening,\n")
    before(
        room / "math" / "derivation.py",
        "from attnctl.math.rules",
        "from attnctl.math.ops.sharpen import Sharpen\n",
    )
    before(room / "math" / "kind.py", "@dataclass(frozen=True, kw_only=True)", snippet("setting") + "\n\n")
    before(room / "math" / "kind.py", "    rules: tuple", f"    {field}\n")
    assert changed(room) == recipe_files("A step")


def with_weight():
    """The package with the weight of the recipes in three of its files."""
    room = copied()
    field = 'jump: bool = field(default=False, metadata={"setting": JUMP})'
    assert field in RECIPES
    rows = "".join(f"    {row},\n" for row in snippet("weight rows").splitlines())
    before(room / "math" / "names.py", "    matrix(W_O", rows)
    lines = indent(snippet("weight lines"), "    ")
    before(room / "math" / "derivation.py", '    yield from given(v, "W_O"', lines)
    setting = snippet("weight setting")
    before(room / "math" / "kind.py", "@dataclass(frozen=True, kw_only=True)", setting + "\n\n")
    before(room / "math" / "kind.py", "    rules: tuple", f"    {field}\n")
    assert changed(room) == recipe_files("A step") - {"math/ops/sharpen.py"}


def before(path, line, more):
    """Put lines before the first that begins so."""
    start, found, rest = path.read_text().partition(line)
    assert found, (path, line)
    path.write_text(start + more + found + rest)


def sharper(q, beta, start=0):
    return q * (1 + beta * np.log(1 + start + np.arange(q.shape[-2])))[:, None]


def step():
    """Q that grows with its position, from four files to every verb."""
    with_step()
    import attnctl

    assert Path(attnctl.__file__).parent.parent == Path.cwd()
    Path("c.yaml").write_text(f"sentence: {SENTENCE}\nheads: 2\nsharpen: 0.5\n")
    assert shell("run", "-c", "c.yaml", "-o", "config.json")[0] == 0
    readers = {
        "": "scores",
        "--causal": "scores",
        "--positions rope": "Q_rotated",
        "--qk-norm rms": "Q_normed",
    }
    for options, reader in readers.items():
        asked = [SENTENCE, "--heads", "2", "--sharpen", ".5", *options.split()]
        assert shell("run", *asked, "-o", "flag.npz")[0] == 0
        trace = attnctl.load("flag.npz")
        np.testing.assert_allclose(trace["Q_sharpened"], sharper(trace["Q"], 0.5), atol=1e-12)
        assert trace.steps[reader].inputs[0] == "Q_sharpened"
        assert shell("check", "flag.npz")[0] == shell("stats", "flag.npz")[0] == 0
        assert "Q_sharpened" in shell("run", *asked, "--cost")[1]
    by_keyword = attnctl.run(SENTENCE, heads=2, sharpen=0.5)
    assert attnctl.load("config.json").config == by_keyword.config
    back = attnctl.run(SENTENCE, heads=2, sharpen=0.5, backward=True)
    np.testing.assert_allclose(back["d_Q"], sharper(back["d_Q_sharpened"], 0.5), atol=1e-12)
    assert by_keyword.config["sharpen"] == 0.5
    assert "sharpen" not in attnctl.run(SENTENCE).config
    assert "sharpen" in shell("config", "schema")[1]
    assert "is multiplied by a number that grows with its position." in story()
    assert "sharpen: 0.5" in shell("config", "init", "-c", "c.yaml")[1]
    assert "--sharpen X" in shell("run", "--help-all")[1]
    assert " · sharpen 0.5 · " in shell("show", "config.json")[1]
    code, told = shell("explain", "config.json", "Q_sharpened[0,cat,1]", "--json")
    value = json.loads(told)
    assert (code, eval(value["expression"])) == (0, value["value"])
    assert shell("check", "flag.npz", "--sharpen", ".4")[0] == 1

    rng = np.random.RandomState(0)
    arrays = {name: rng.randn(1, 1500, 4) for name in "QKV"}
    cached = arrays | {f"past_{name}": rng.randn(1, 3, 4) for name in ("key", "value")}
    whole = attnctl.attend(cached, sharpen=0.5)
    tiled = attnctl.attend(cached, sharpen=0.5, keep=["head_outputs"])
    np.testing.assert_allclose(tiled["head_outputs"], whole["head_outputs"], atol=1e-13)
    np.testing.assert_allclose(whole["Q_sharpened"], sharper(arrays["Q"], 0.5, 3), atol=1e-12)

    q, k, v = (rng.randn(2, 6, 4) for _ in "QKV")
    theirs = {"Q": q, "K": k, "V": v, "scores": sharper(q, 0.3) @ k.swapaxes(-1, -2)}
    assert attnctl.check(theirs, sharpen=0.3).agrees
    assert not attnctl.check(theirs).agrees
    report = attnctl.check(theirs | {"Q_sharpened": sharper(q, 0.3)})  # nobody says so
    assert not report.findings
    assert "--sharpen" in str(report)
    report = attnctl.check(theirs | {"Q_sharpened": sharper(q, 0.2)}, sharpen=0.2)
    assert report.first == "scores", report.to_dict()


def weight():
    """A way past attention, from three files: drawn, written, read, checked, and back."""
    with_weight()
    import attnctl

    asked = [SENTENCE, "--heads", "2", "--jump"]
    plain = attnctl.run(SENTENCE, heads=2)
    assert shell("run", *asked, "-o", "x.npz")[0] == 0
    trace = attnctl.load("x.npz")
    assert all((trace[name] == plain[name]).all() for name in plain if name != "output")
    jumped = trace["concat"] + trace["X"] @ trace["W_jump"]
    np.testing.assert_allclose(trace["jumped"], jumped, atol=1e-12)
    np.testing.assert_allclose(trace["output"], jumped @ trace["W_O"], atol=1e-12)
    assert trace.config["jump"]
    Path("c.yaml").write_text(f"sentence: {SENTENCE}\nweights: {{random: {{stream: numpy_legacy}}}}\n")
    for each in ("x.json", "y.json"):
        assert shell("run", "-c", "c.yaml", *["--jump"] * (each == "y.json"), "-o", each)[0] == 0
    assert (attnctl.load("x.json")["W_O"] == attnctl.load("y.json")["W_O"]).all()
    assert shell("check", "x.npz")[0] == shell("diff", "x.npz", "x.npz")[0] == 0
    assert "W_jump" in shell("run", *asked, "--cost")[1]
    assert " · jump · " in shell("show", "x.npz")[1]
    code, told = shell("explain", "x.npz", "jumped[cat,1]", "--json")
    value = json.loads(told)
    assert (code, eval(value["expression"], vars(math))) == (0, value["value"])
    assert '"W_jump"' in shell("config", "schema")[1]
    assert "d_model rows of heads · d_v numbers" in shell("config", "schema")[1]

    written = {"W_jump": np.eye(4)[::-1].tolist(), "b_jump": [0.5] * 4}
    config = f"sentence: {SENTENCE}\nheads: 2\njump: true\nweights: {json.dumps(written)}\n"
    Path("c.yaml").write_text(config)
    assert shell("run", "-c", "c.yaml", "-o", "config.json")[0] == 0
    again = attnctl.load("config.json")
    assert again["W_jump"].tolist() == written["W_jump"]
    np.testing.assert_allclose(again["jump"], again["X"][:, ::-1] + 0.5)
    assert (again["W_O"] == plain["W_O"]).all()
    Path("c.yaml").write_text(config.replace("[[0.0, 0.0, 0.0, 1.0], ", "["))
    assert "$.weights.W_jump: 3 × 4, expected 4 × 4 (d_model × heads·d_v)" in refusal("run", "-c", "c.yaml")
    Path("c.yaml").write_text(config.replace("jump: true\n", ""))
    for name in written:
        assert f"{name}: nothing here reads it; --jump does" in refusal("run", "-c", "c.yaml")

    rng = np.random.RandomState(0)
    arrays = {name: rng.randn(2, 6, 4) for name in ("W_Q", "W_K", "W_V")}
    arrays |= {"X": rng.randn(5, 6), "W_jump": rng.randn(6, 8), "W_O": rng.randn(8, 6)}
    found = attnctl.attend(arrays, jump=True, backward=True)
    np.testing.assert_allclose(found["jumped"], found["concat"] + arrays["X"] @ arrays["W_jump"])
    linear = attnctl.attend(arrays | {"W_jump": arrays["W_jump"].T, "W_O": arrays["W_O"].T}, jump=True)
    np.testing.assert_array_equal(linear["output"], found["output"])
    step = 1e-6 * rng.randn(6, 8)
    moved = [attnctl.attend(arrays | {"W_jump": arrays["W_jump"] + by}, jump=True) for by in (step, -step)]
    change = ((moved[0]["output"] - moved[1]["output"]) * found["d_output"]).sum()
    np.testing.assert_allclose(change, 2 * (found["d_W_jump"] * step).sum(), rtol=1e-6)
    report = attnctl.check(
        {**arrays, **{name: found[name] for name in ("jump", "jumped", "output")}}, jump=True
    )
    assert report.agrees, str(report)
    wrong = attnctl.check({**arrays, "jumped": found["concat"], "output": found["output"]}, jump=True)
    assert wrong.first == "jumped"

    heads = {"W_jump": arrays["W_jump"], **{name: rng.randn(2, 5, 4) for name in "QKV"}}
    lacking = {name: array for name, array in arrays.items() if name != "W_jump"}
    for given, options, said in (
        (lacking, {"jump": True}, "jump reads W_jump, which is neither given nor a line"),
        (lacking, {"jump": True, "backward": True}, "; give W_jump or leave --jump out"),
        (arrays, {}, "W_jump: nothing here reads it; --jump does"),
        (heads, {"jump": True}, "jump reads X, which is neither given nor a line"),
    ):
        with pytest.raises(attnctl.AttnError) as refused:
            attnctl.attend(given, **options)
        assert [said in problem for problem in refused.value.problems] == [True], refused.value.problems


LOUDNESS = '''
from __future__ import annotations

from attnctl.base.dataclass import dataclass
from attnctl.math import Array
from attnctl.math.notation import Input, Term
from attnctl.math.ops.base import Op, Places


@dataclass(frozen=True)
class Loudness(Op):
    """x · g, a number for each head."""

    signature = "batch? head query d, head -> batch? head query d"
    linear = ((0,), (1,))
    words = "Each head of {0} is multiplied by its number of {1}."
    flops = 1

    def apply(self, x: Array, g: Array) -> Array:
        return x * g[:, None, None]

    def form(self, cell: Places, x: Input, g: Input) -> Term:
        return x.at(*cell) * g.at(cell[-3])
'''
LOUD_ROWS = """
    Name("W_loud", "W", ("head",), leaf=True, input=True, once=True, of="Q", asked="loud"),
    vectors("Q_loud", "Q", "head", "query", "d_k"),
"""
LOUD_LINES = '''
def loudness(v: Variant, at: Latest) -> Lines:
    """Q times a number for each head."""
    if v.loud:
        yield from given(v, "W_loud")
        yield line("Q_loud", Loudness(), (at["Q"], "W_loud"), f"{at['Q']} · W_loud")


'''
LOUD_SETTING = """
LOUD = Setting("loud", SWITCH, "Each head of Q is multiplied by a number of its own.", True, Flag("--loud"))

"""


def number():
    """A weight of one number for each head: drawn, written, read, checked and explained."""
    math_room = copied() / "math"
    (math_room / "ops" / "loudness.py").write_text(LOUDNESS)
    before(math_room / "names.py", '    vectors("Q_rotated"', LOUD_ROWS)
    derivation = math_room / "derivation.py"
    before(derivation, "def norms(", LOUD_LINES)
    before(derivation, "    norms,\n", "    loudness,\n")
    before(derivation, "from attnctl.math.rules", "from attnctl.math.ops.loudness import Loudness\n")
    kind = math_room / "kind.py"
    before(kind, "@dataclass(frozen=True, kw_only=True)", LOUD_SETTING)
    before(kind, "    rules: tuple", '    loud: bool = field(default=False, metadata={"setting": LOUD})\n')
    import attnctl

    assert shell("run", SENTENCE, "--heads", "2", "--loud", "-o", "x.npz")[0] == 0
    trace = attnctl.load("x.npz")
    assert trace["W_loud"].shape == (2,)
    np.testing.assert_allclose(trace["Q_loud"], trace["Q"] * trace["W_loud"][:, None, None])
    assert shell("check", "x.npz")[0] == shell("explain", "x.npz", "Q_loud[1,cat,0]")[0] == 0
    assert "W_loud" in shell("run", SENTENCE, "--loud", "--cost")[1]
    assert "heads numbers" in shell("config", "schema")[1]

    config = f"sentence: {SENTENCE}\nheads: 2\nloud: true\nweights: {{W_loud: [1.0, 2.0]}}\n"
    Path("c.yaml").write_text(config)
    assert shell("run", "-c", "c.yaml", "-o", "config.json")[0] == 0
    assert attnctl.load("config.json")["W_loud"].tolist() == [1, 2]
    Path("c.yaml").write_text(config.replace("2.0]", "2.0, 3.0]"))
    assert "$.weights.W_loud: 3, expected 2 (head)" in refusal("run", "-c", "c.yaml")
    Path("c.yaml").write_text(config.replace("W_loud: [1.0, 2.0]", "random: {layout: per_head}"))
    assert shell("run", "-c", "c.yaml")[0] == 0

    arrays = {name: np.random.RandomState(0).randn(2, 3, 4) for name in "QKV"}
    found = attnctl.attend(arrays | {"W_loud": np.array([1.0, 2.0])}, loud=True)
    np.testing.assert_array_equal(found["Q_loud"][1], 2 * arrays["Q"][1])


VERB = {
    "verbs/longest/verb.py": '''
"""What is said of longest."""

from attnctl.base.verb import Verb
from attnctl.store.formats import FOUND_JSON

VERB = Verb(
    name="longest",
    section="Look",
    place=57,
    line="Name the longest token.",
    daily={"longest": "json output"},
    formats={"longest": (FOUND_JSON,)},
    views={"Longest": "attnctl.verbs.longest:longest_lines"},
    function="attnctl.verbs.longest:longest",
    sources={"longest": "{} --json"},
    trial="a.json",
)
''',
    "verbs/longest/__init__.py": '''
"""Which token of a trace is the longest."""

from typing import Any, NamedTuple

from attnctl.base import Displayed
from attnctl.base.dataclass import dataclass


@dataclass(frozen=True)
class Longest(Displayed):
    token: str

    def to_dict(self) -> dict[str, Any]:
        return {"token": self.token, "length": len(self.token)}


def longest(trace: Any) -> Longest:
    """The longest token of a trace."""
    return Longest(max(trace.tokens or ("",), key=len))


def longest_lines(found: Longest, screen: Any) -> Any:
    yield [(found.token, "name"), (f" has {len(found.token)} characters", "")]
''',
    "cli/longest.py": '''
"""attnctl longest: the longest token of a dump."""

from __future__ import annotations

from functools import partial

from attnctl.cli import options
from attnctl.cli.options import argument, command, option
from attnctl.cli.output import give
from attnctl.sources import HELP, open_source
from attnctl.verbs.longest import longest as find_longest
from attnctl.verbs.longest import longest_lines


@command("attnctl longest dump.json")
def longest(
    *,
    source: str = argument(HELP, "SOURCE"),
    json: bool = option("Print it as JSON."),
    output: list[str] | None = options.findings_option("longest"),
) -> None:
    """Name the longest token of a dump."""
    found = find_longest(open_source(source).traces()[0])
    give("longest", [found], output, partial(longest_lines, found), json=json)
''',
}
"""A verb in the files that its recipe names."""

LAWS = ("cli/test_help.py", "cli/test_narrow.py", "cli/test_source_kinds.py", "attacks/test_written.py")


def verb():
    """A verb in its three files, held to the laws of the others' tests."""
    room = copied()
    for path, code in VERB.items():
        (room / path).parent.mkdir(exist_ok=True)
        (room / path).write_text(code.lstrip())
    assert changed(room) == {path.replace("NAME", "longest") for path in recipe_files("A verb")}
    import attnctl

    listed = re.findall(r"^  (\w+) +[A-Z]", shell("--help")[1], re.MULTILINE)
    assert listed[listed.index("longest") - 1 :][:3] == ["corpus", "longest", "model"]
    assert "attnctl longest dump.json" in shell("longest", "--help")[1]
    assert "-o, --output" in shell("longest", "--help")[1]
    assert "there are run," in refusal("nothing")
    assert "longest" in refusal("nothing")
    assert shell("run", "I adore it", "-o", "a.json") == (0, "")
    assert shell("longest", "a.json") == (0, "adore has 5 characters\n")
    assert shell("longest", "a.json", "-o", "found.json") == (0, "")
    assert json.loads(Path("found.json").read_text()) == {"token": "adore", "length": 5}
    assert ".xyz" in refusal("longest", "a.json", "-o", "found.xyz")
    assert "longest" in dir(attnctl)
    assert str(attnctl.longest(attnctl.load("a.json"))) == "adore has 5 characters"

    assert laws_held("longest", *LAWS) > 10, "the laws have taken it up"


def laws_held(words, *files):
    """Run the tests of others, as they are, on the copy; how many of them have these words, and passed."""
    tests = [str(ROOT / "tests" / name) for name in files]
    shutil.copytree(ROOT / "configs", "configs")
    chosen = ["-n", "0", "-p", "no:cacheprovider", "-m", "not whole", "-k", words]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), *chosen, *tests],
        env=os.environ | {"PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return int(re.search(r"(\d+) passed", done.stdout)[1])


MISTAKE = r"""
    of_weights(
        "scores-as-distances",
        "the scores are negated, as if they were distances",
        "leave the minus sign out",
        STEP.by(lambda s: wrong.softmax(np.where(np.isneginf(s), s, -s))),
        why="Of distances the smallest is the best.",
        example="e = np.exp(-scaled_scores)\nattention_weights = e / e.sum(axis=-1, keepdims=True)",
    ),
"""


def mistake():
    """An entry of the catalogue, named by check, told by its page, planted and a mutant."""
    room = copied()
    before(room / "mistakes" / "softmax.py", '    of_weights(\n        "nan-where', MISTAKE.lstrip("\n"))
    hold_to_row(room, "a mistake")
    import attnctl

    trace = attnctl.run(SENTENCE, heads=2)
    e = np.exp(-trace["scaled_scores"])
    np.savez("theirs.npz", **dict(trace) | {"attention_weights": e / e.sum(-1, keepdims=True)})
    code, report = shell("check", "theirs.npz")
    assert code == 1
    assert "the scores are negated, as if they were distances" in " ".join(report.split())
    assert "Of distances the smallest is the best." in shell("check", "--about", "scores-as-distances")[1]
    assert "scores-as-distances" in shell("mistakes")[1]
    assert laws_held("distances", "check/test_check_about.py", "mistakes") >= 2


TSV = """
    Format("tsv", ".tsv", "attnctl.store.tsv:write_tsv", text=True),
"""


def format_of_traces():
    """A format in which traces are written: by -o, by --format, and in the list of what there is."""
    room = copied()
    sample = (ROOT / "samples" / "plugin" / "attnctl_strided" / "tsv.py").read_text()
    (room / "store" / "tsv.py").write_text(sample[sample.index("def ") : sample.index("TSV = ")])
    before(room / "formats.py", "    workbook(", TSV.lstrip("\n"))
    hold_to_row(room, "a format")
    import attnctl

    assert shell("run", SENTENCE, "-o", "run.tsv") == (0, "")
    rows = [line.split("\t") for line in Path("run.tsv").read_text().splitlines()]
    told = [[float(number) for number in row] for name, *row in rows if name == "attention_weights"]
    assert told == attnctl.run(SENTENCE)["attention_weights"].reshape(6, 6).tolist()
    assert shell("run", SENTENCE, "--format", "tsv")[1] == Path("run.tsv").read_text()
    assert ".tsv" in refusal("run", SENTENCE, "-o", "run.xyz")


READER = '''
"""Dumps as lines: the name of an array, and a row of it."""

import numpy as np

from attnctl.store.header import Contents


def read_lines(data, place):
    rows = {}
    for line in data.decode().splitlines()[1:]:
        name, *numbers = line.split()
        rows.setdefault(name, []).append([float(number) for number in numbers])
    yield Contents(None, {name: np.array(table) for name, table in rows.items()}, place)
'''
LINES = """
    DumpFormat(
        "lines",
        (".lines",),
        lambda head: head.startswith(b"#lines"),
        "attnctl.store.lines:read_lines",
        text=True,
    ),
"""


def format_of_dumps():
    """A format from which dumps are read: by suffix or by its first bytes, by every verb."""
    room = copied()
    (room / "store" / "lines.py").write_text(READER.lstrip())
    before(room / "store" / "__init__.py", '    DumpFormat("JSON"', LINES.lstrip("\n"))
    hold_to_row(room, "a format of dumps that is read")
    import attnctl

    rng = np.random.RandomState(0)
    arrays = {name: rng.randn(3, 4) for name in "QKV"}
    rows = [f"{name} {' '.join(map(repr, row))}" for name in arrays for row in arrays[name].tolist()]
    for name in ("theirs.lines", "theirs"):
        Path(name).write_text("\n".join(["#lines", *rows]))
        read = attnctl.load(name)
        assert all((read[each] == arrays[each]).all() for each in "QKV")
        assert shell("attend", name, "-o", "run.npz")[0] == 0
        assert shell("show", name)[0] == 0
    assert (attnctl.load("run.npz")["head_outputs"] == attnctl.attend(arrays)["head_outputs"]).all()


HALF = '''
"""A dump that is named behind a prefix."""

from attnctl.sources.dump import Dump


def of_half(text, beside):
    return Dump(text.removeprefix("half:"), beside)
'''
HALF_KIND = """
    SourceKind(DUMP, "attnctl.sources.half:of_half", ("half:",), "half:NAME", trial="half:d.json"),
"""


def source():
    """A kind of source: in help, in messages, and taken by every verb that takes one."""
    room = copied()
    (room / "sources" / "half.py").write_text(HALF.lstrip())
    kinds = room / "sources" / "__init__.py"
    before(kinds, "    SourceKind(CONFIG, OF_CONFIG, (EXAMPLE,)", HALF_KIND.lstrip("\n"))
    hold_to_row(room, "a kind of source")

    assert shell("run", SENTENCE, "-o", "a.json") == (0, "")
    assert shell("show", "half:a.json") == shell("show", "a.json")
    assert "half:NAME" in " ".join(shell("show", "--help")[1].split())
    assert "half:NAME" in refusal("show", "nowhere")
    verbs = "show or explain or check or diff or stats or each_kind_is_tried"
    assert laws_held(verbs, "cli/test_source_kinds.py") >= 6


FAMILY = """

TWIN = derive_stack(LLAMA, settings={"eps": epsilon("twin_eps", 1e-6)})
"""


def family():
    """A family of models: an entry and its model_type; its keys are read, others refused by name."""
    room = copied()
    families = room / "models" / "families"
    entries = families / "llama.py"
    entries.write_text(entries.read_text() + FAMILY)
    before(families / "__init__.py", '    "mistral": ', '    "twin": {"": llama.TWIN},\n')
    hold_to_row(room, "a family of models")

    plain = ROOT / "tests" / "models" / "checkpoints" / "llama"
    config = json.loads((plain / "config.json").read_text())
    shutil.copytree(plain, "twin")
    eps = config.pop("rms_norm_eps")
    config |= {"model_type": "twin", "architectures": ["TwinForCausalLM"]}
    Path("twin", "config.json").write_text(json.dumps(config | {"twin_eps": eps}))

    asked = ("run", "--ids", "3,4,5", "--layer", "1", "--json", "--model")
    theirs = json.loads(shell(*asked, str(plain))[1])
    found = json.loads(shell(*asked, "twin")[1])
    assert found["steps"] == theirs["steps"]
    assert "twin" in shell("model", "twin")[1]
    Path("twin", "config.json").write_text(json.dumps(config | {"rms_norm_eps": eps * 2}))
    assert "rms_norm_eps" in refusal("model", "twin")


ADDITIONS = {
    "rule": rule,
    "step": step,
    "weight": weight,
    "number": number,
    "verb": verb,
    "mistake": mistake,
    "format": format_of_traces,
    "dumps": format_of_dumps,
    "source": source,
    "family": family,
}
"""What carries each addition out, by the name that the tests call it."""

if __name__ == "__main__":
    ADDITIONS[sys.argv[1]]()
