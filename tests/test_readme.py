"""Every command in the documents is run, and its output is what the documents say."""

import re
import subprocess
from pathlib import Path

import pytest
from processor import on_any_processor

ROOT = Path(__file__).parent.parent
TRIALS = Path(__file__).parent / "trials"
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "samples").rglob("README.md"))]
DOCUMENTS += sorted(TRIALS.glob("*.md"))
OF_ROOMS = sorted((ROOT / "attnctl").rglob("README.md"))
"""For people who open a folder of the package: what they show is carried out by tests/test_additions.py."""


def sessions(document):
    """Each ```console block: its line, and its (command, output) pairs."""
    for block in re.finditer(r"^```console\n(.*?)^```$", document.read_text(), re.DOTALL | re.MULTILINE):
        line = document.read_text()[: block.start()].count("\n") + 1
        steps = re.split(r"^\$ ", block[1], flags=re.MULTILINE)[1:]
        yield line, [split(step) for step in steps]


def split(step):
    """A command (a line goes on behind a backslash at its end, and in one with "> ") and what it prints."""
    lines = [*step.split("\n"), ""]
    last = next(
        i for i, line in enumerate(lines) if not line.endswith("\\") and not lines[i + 1].startswith("> ")
    )
    return "\n".join(lines[: last + 1]), "\n".join(lines[last + 1 :]).rstrip()


SESSIONS = [
    pytest.param(
        document,
        steps,
        id=f"{document.relative_to(ROOT)}:{line}",
        marks=[pytest.mark.slow] if document.parent != ROOT else [],
    )
    for document in DOCUMENTS
    if document.exists()
    for line, steps in sessions(document)
]


@pytest.mark.parametrize(("document", "steps"), SESSIONS)
def test_the_documents_show_what_happens(document, steps, workplace):
    for command, expected in steps:
        done = subprocess.run(
            ["bash", "-c", command.replace("\n> ", "\n")],
            cwd=workplace.folder,
            env=workplace.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        code = f"\n(exit {done.returncode})" if done.returncode and "(exit " in expected else ""
        assert on_any_processor(done.stdout.rstrip() + code) == on_any_processor(expected), command
    assert rewritten(workplace.folder) == []


TRACKED = subprocess.run(
    ["git", "ls-files", "samples", "configs"], cwd=ROOT, capture_output=True, text=True, check=False
).stdout.splitlines()


def rewritten(folder):
    """The files of a clone that commands changed: people run them in theirs."""
    there = [name for name in TRACKED if (ROOT / name).exists()]
    return [name for name in there if (folder / name).read_bytes() != (ROOT / name).read_bytes()]


PYTHON = [
    pytest.param(block, id=f"{document.relative_to(ROOT)}")
    for document in DOCUMENTS
    if document.name == "README.md"
    for block in re.findall(r"^```python\n(.*?)^```$", document.read_text(), re.DOTALL | re.MULTILINE)
]


@pytest.mark.parametrize("block", PYTHON)
def test_the_python_of_the_documents_runs(block, workplace):
    done = workplace.shell(f"python - <<'PY'\n{block}\nPY")
    assert (done.returncode, done.stderr) == (0, b"")


def prose(document):
    """A document without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(document):
    """What GitHub makes of each heading: lower case, without punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.*)$", prose(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", [*DOCUMENTS, *OF_ROOMS], ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", prose(document)):
        file, _, anchor = link.partition("#")
        target = document.parent / file if file else document
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_contributing_is_read_in_one_sitting():
    assert (ROOT / "CONTRIBUTING.md").read_text().count("\n") <= 150


def test_there_is_something_to_run():
    assert len(SESSIONS) > 10
