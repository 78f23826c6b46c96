"""The plugin of pytest, in a pytest of its own: a test a feature, and nothing where it is not used."""

import re
import subprocess
import sys
from importlib.metadata import entry_points

import pytest
from conform_table import KERNELS

CALLED = """
import right
import wrong_masks


def test_right(attnctl_conform):
    assert attnctl_conform(right.naive, quick=True, dtypes=["float32"]).agrees


def test_wrong(attnctl_conform):
    attnctl_conform("wrong_masks:causal_ignored", quick=True, dtypes=["float32"])


def test_other():
    pass
"""


def outcomes(folder, *args):
    """What pytest says of each test, and all it prints."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-rA", *args]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    said = re.findall(r"^(PASSED|FAILED|XFAIL|ERROR) (?:\S+::)?(.*?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return {name: outcome for outcome, name in said}, done.stdout + done.stderr


def project(folder, ini, **files):
    """A folder with an ini file and tests."""
    (folder / "pytest.ini").write_text(f"[pytest]\nfilterwarnings = error\npythonpath = {KERNELS}\n{ini}")
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def test_the_plugin_is_known_to_pytest():
    found = {each.value for each in entry_points(group="pytest11")}
    assert "attnctl.pytest_plugin" in found


@pytest.mark.slow
def test_the_ini_file_gives_a_test_for_each_feature(tmp_path):
    (tmp_path / "known.yaml").write_text("causal: it is on its way\n")
    lines = [
        "right:naive --quick --dtype float32",
        "wrong_masks:causal_off_by_one --quick --dtype float32",
        "wrong_masks:causal_ignored --quick --dtype float32 --xfail known.yaml",
        "nowhere:attention",
    ]
    folder = project(
        tmp_path, "attnctl_conform =\n    " + "\n    ".join(lines), test_other="def test(): pass"
    )
    found, text = outcomes(folder, "-k", "causal or test_other")
    right, wrong, known, nowhere = lines
    assert found[f"{right}[causal]"] == found["test"] == "PASSED"
    assert found[f"{wrong}[causal]"] == "FAILED"
    assert found[f"{known}[causal]"] == "XFAIL"
    assert [name for name in found if name.startswith(nowhere) and found[name] == "FAILED"] == [
        f"{nowhere}[causal]"
    ]
    assert text.count("it could not be loaded: ModuleNotFoundError: No module named 'nowhere'") >= 1
    assert "causal-offset: causal, in float32\n" in text
    assert re.search(r"^attnctl conform wrong_masks:causal_off_by_one --replay .*npz$", text, re.MULTILINE)


@pytest.mark.slow
def test_the_fixture_gives_a_test_for_each_feature(tmp_path):
    found, text = outcomes(project(tmp_path, "", test_mine=CALLED), "-k", "causal or test_other")
    assert found == {
        "test_right[causal]": "PASSED",
        "test_wrong[causal]": "FAILED",
        "test_other": "PASSED",
    }
    assert "attnctl_conform(" not in text.partition("short test summary")[0]  # the report, not our code


@pytest.mark.parametrize(
    "args", [pytest.param(("test_other.py",), marks=pytest.mark.slow), ("-k", "test_other")]
)
def test_what_is_not_asked_for_is_not_run(tmp_path, args):
    ini = f"attnctl_conform = nowhere:attention\ntestpaths = {tmp_path / 'tests'}"
    folder = project(tmp_path, ini, test_other="def test(): pass")
    (folder / "tests").mkdir()
    (folder / "tests" / "test_other.py").write_text("def test(): pass")
    found, _ = outcomes(folder, *args)
    assert found == {"test": "PASSED"}


def test_an_option_without_a_file_is_refused(tmp_path):
    (tmp_path / "test_other.py").write_text("def test(): pass")
    _, text = outcomes(tmp_path, "-o", "attnctl_conform=a:b")
    assert "attnctl_conform: write it in a file, like pytest.ini, rather than with -o" in text


def test_it_costs_nothing_where_it_is_not_used(tmp_path):
    look = "import sys\nfrom pathlib import Path\n"
    look += "def test(): Path('modules.txt').write_text(' '.join(sys.modules))\n"
    found, _ = outcomes(project(tmp_path, "", test_look=look), "-p", "no:hypothesispytest")
    assert found == {"test": "PASSED"}
    modules = (tmp_path / "modules.txt").read_text().split()
    assert sorted(name for name in modules if name.partition(".")[0] == "attnctl") == [
        "attnctl",
        "attnctl.base",
        "attnctl.pytest_plugin",
    ]
    assert "numpy" not in modules
