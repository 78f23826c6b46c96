"""The plugin of pytest: a test for each feature that a function is held to, and for each wrong kernel.

Of the functions that the ini file names, each line a TARGET of `attnctl conform` with its options:

    [pytest]
    attnctl_conform = my_kernels:attention --like flash --quick

or in a test, which then runs once for each feature:

    def test_attention(attnctl_conform):
        attnctl_conform("my_kernels:attention", like="flash", quick=True)

Of tests of your own a test for each wrong kernel that they should kill, each line a command of
`attnctl mutants`:

    attnctl_mutants = --with causal -- env KERNEL={kernel} pytest -q test_attention.py

And the calls of attention in a test are traces:

    def test_model(attnctl_capture):
        calls = attnctl_capture(module="layers.2.*")
        model(x)
        assert attnctl.check(calls[0]).agrees

pytest loads this module whether it is used or not, so it imports nothing of attnctl before it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from attnctl.verbs.conform.report import Conformance

CONFORM = "attnctl_conform"
"""The setting of the ini file, and the fixture."""

MUTANTS = "attnctl_mutants"
"""The setting of the ini file."""

FEATURE = "attnctl_feature"

Results = list[Mapping[str, Any]]
"""What became of features, as `attnctl conform --json` has it."""

REPORTS: pytest.StashKey[dict[tuple[str, ...], dict[str, Any] | str]] = pytest.StashKey()
"""By verb, target and options: what was found, or why that is nothing."""


def pytest_addoption(parser: pytest.Parser) -> None:
    words = "attention functions, one a line, to be held to attention: TARGET [options of attnctl conform]"
    parser.addini(CONFORM, words, type="linelist", default=[])
    words = "tests to be run on wrong kernels, one a line: [options of attnctl mutants] -- CMD"
    parser.addini(MUTANTS, words, type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Collect the ini file, too, unless the command line says what is to be collected."""
    asked = [name for name in (CONFORM, MUTANTS) if config.getini(name)]
    if not asked or config.args_source is pytest.Config.ArgsSource.ARGS:
        return
    if config.inipath is None:
        raise pytest.UsageError(f"{asked[0]}: write it in a file, like pytest.ini, rather than with -o")
    folders = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    if not any(config.inipath.is_relative_to(folder) for folder in folders):
        config.args.append(str(config.inipath))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    config = parent.config
    if file_path != config.inipath or not (config.getini(CONFORM) or config.getini(MUTANTS)):
        return None
    return IniFile.from_parent(parent, path=file_path)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if CONFORM in metafunc.fixturenames:
        metafunc.parametrize(FEATURE, features())


@pytest.fixture
def attnctl_conform(attnctl_feature: str) -> Callable[..., Conformance]:
    """Hold a function, or the name of one, to this test's feature; options as of `attnctl.conform`."""
    from attnctl.api import conform

    def hold(target: Any, **options: Any) -> Conformance:
        __tracebackhide__ = True
        found = conform(target, features=[attnctl_feature], **options)
        judge([feature.to_dict() for feature in found.features])
        return found

    return hold


class IniFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        import shlex

        kinds = ((CONFORM, ConformItem, lambda _: features()), (MUTANTS, MutantItem, mutant_names))
        for setting, kind, parts in kinds:
            for line in self.config.getini(setting):
                words = tuple(shlex.split(line))
                for part in parts(words):
                    yield kind.from_parent(self, name=f"{line}[{part}]", words=words, part=part)


class IniItem(pytest.Item):
    """A part of what a line of the ini file asks for; the first of its tests runs all that are wanted."""

    verb = ""

    def __init__(self, *, words: tuple[str, ...], part: str, **of_pytest: Any) -> None:
        super().__init__(**of_pytest)
        self.words, self.part, self.key = words, part, (self.verb, *words)

    def found(self, *flags: str) -> dict[str, Any] | str:
        reports = self.session.stash.setdefault(REPORTS, {})
        if self.key not in reports:
            reports[self.key] = run_verb([self.verb, "--json", *flags, *self.words], self.path.parent)
        return reports[self.key]

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


class ConformItem(IniItem):
    verb = "conform"

    def runtest(self) -> None:
        mine = [item for item in self.session.items if isinstance(item, ConformItem)]
        wanted = [item.part for item in mine if item.words == self.words]
        found = self.found(*(word for name in wanted for word in ("--feature", name)))
        if isinstance(found, str):  # said once
            self.session.stash[REPORTS][self.key] = {"features": []}
            pytest.fail(found, pytrace=False)
        judge([result for result in found["features"] if result["feature"] == self.part])


class MutantItem(IniItem):
    verb = "mutants"

    def runtest(self) -> None:
        found = self.found()
        if isinstance(found, str):
            pytest.fail(found, pytrace=False)
        if why := found["equivalent"].get(self.part):
            pytest.skip(why)
        for survivor in found["survivors"]:
            if survivor["name"] == self.part:
                said = "survives: {words}\n{kernel} is told from the right one by {file}: {input}"
                pytest.fail(said.format_map(survivor), pytrace=False)


def mutant_names(words: Sequence[str]) -> list[str]:
    from itertools import pairwise

    from attnctl.verbs.mutants.tested import OwnTest, mutants_for

    own = words[: words.index("--")] if "--" in words else words
    asked = frozenset(value for flag, value in pairwise(own) if flag == "--with")
    return [mutant.name for mutant in mutants_for(OwnTest((), asked, backward="--backward" in own))]


@pytest.fixture
def attnctl_capture() -> Iterator[Callable[..., Any]]:
    """Begin to record calls of attention, until the test ends; options as of `attnctl.capture`."""
    from contextlib import ExitStack

    from attnctl.api import capture

    with ExitStack() as stack:
        yield lambda *words, **options: stack.enter_context(capture(*words, **options))


def features() -> Sequence[str]:
    from attnctl.verbs.conform.features import NAMES

    return NAMES


def run_verb(words: Sequence[str], folder: Path) -> dict[str, Any] | str:
    """What a command finds, in a folder, as JSON; or its complaint."""
    import io
    import json
    import os

    from attnctl.cli.program import program

    out, complaint, here = io.StringIO(), io.StringIO(), Path.cwd()
    os.chdir(folder)
    try:
        program([*words], stdout=out, stderr=complaint)
    finally:
        os.chdir(here)
    try:
        found: dict[str, Any] = json.loads(out.getvalue())
    except ValueError:
        return complaint.getvalue().strip() or out.getvalue()
    return found


def judge(results: Results) -> None:
    __tracebackhide__ = True
    wrong = [result for result in results if result["status"] in {"failed", "ignored"}]
    if wrong:
        pytest.fail("\n\n".join(mistake_paragraphs(wrong)), pytrace=False)
    if known := dict.fromkeys(result["known"] for result in results if result["status"] == "xfail"):
        pytest.xfail("; ".join(known))
    if all(result["status"] == "skipped" for result in results):
        reasons = dict.fromkeys(result["explanation"] for result in results)
        pytest.skip("; ".join(reasons) or "it was not run, or nothing is declared that could be held to")


def mistake_paragraphs(wrong: Results) -> Iterator[str]:
    """Each mistake once: the types that show it, what it is, a case, and how to see that again."""
    by_mistake: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for feature in wrong:
        key = feature["mistake"] or feature["status"], feature["explanation"]
        by_mistake.setdefault(key, []).append(feature)
    for (mistake, explanation), same in by_mistake.items():
        first, types = same[0], ", ".join(feature["dtype"] for feature in same)
        lines = [f"{mistake}: {first['feature']}, in {types}", explanation, first["case"], first["replay"]]
        yield "\n".join(filter(None, lines))
