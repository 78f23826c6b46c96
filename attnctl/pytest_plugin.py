"""The plugin of pytest: a test for each feature that an attention function is held to.

Of the functions that the ini file names, each line a TARGET of `attnctl conform` with its options:

    [pytest]
    attnctl_conform = my_kernels:attention --like flash --quick

or in a test, which then runs once for each feature:

    def test_attention(attnctl_conform):
        attnctl_conform("my_kernels:attention", like="flash", quick=True)

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

FEATURE = "attnctl_feature"

Results = list[Mapping[str, Any]]
"""What became of features, as `attnctl conform --json` has it."""

REPORTS: pytest.StashKey[dict[tuple[str, ...], Results | str]] = pytest.StashKey()
"""By target and options: its results, or why there are none."""


def pytest_addoption(parser: pytest.Parser) -> None:
    words = "attention functions, one a line, to be held to attention: TARGET [options of attnctl conform]"
    parser.addini(CONFORM, words, type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Collect the ini file, too, unless the command line says what is to be collected."""
    if not config.getini(CONFORM) or config.args_source is pytest.Config.ArgsSource.ARGS:
        return
    if config.inipath is None:
        raise pytest.UsageError(f"{CONFORM}: write it in a file, like pytest.ini, rather than with -o")
    folders = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    if not any(config.inipath.is_relative_to(folder) for folder in folders):
        config.args.append(str(config.inipath))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path != parent.config.inipath or not parent.config.getini(CONFORM):
        return None
    return ConformFile.from_parent(parent, path=file_path)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for the fixture runs once for each feature."""
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


class ConformFile(pytest.File):
    """The ini file, where the tests of its targets are."""

    def collect(self) -> Iterator[pytest.Item]:
        import shlex

        for line in self.config.getini(CONFORM):
            words = tuple(shlex.split(line))
            for feature in features():
                yield ConformItem.from_parent(self, name=f"{line}[{feature}]", words=words, feature=feature)


class ConformItem(pytest.Item):
    """A test: one feature of one target."""

    def __init__(self, *, words: tuple[str, ...], feature: str, **of_pytest: Any) -> None:
        super().__init__(**of_pytest)
        self.words, self.feature = words, feature

    def runtest(self) -> None:
        """Judge the feature; the first test of a target runs every feature of it that is wanted."""
        reports = self.session.stash.setdefault(REPORTS, {})
        if self.words not in reports:
            mine = [item for item in self.session.items if isinstance(item, ConformItem)]
            wanted = [feature.feature for feature in mine if feature.words == self.words]
            reports[self.words] = run_conform(self.words, wanted, self.path.parent)
        results = reports[self.words]
        if isinstance(results, str):  # said once
            reports[self.words] = []
            pytest.fail(results, pytrace=False)
        judge([result for result in results if result["feature"] == self.feature])

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


def features() -> Sequence[str]:
    from attnctl.verbs.conform.features import NAMES

    return NAMES


def run_conform(words: Sequence[str], wanted: Sequence[str], folder: Path) -> Results | str:
    """Run `attnctl conform` on a target of a folder, and return its results, or its complaint."""
    import io
    import json
    import os

    from attnctl.cli.program import program

    out, complaint, here = io.StringIO(), io.StringIO(), Path.cwd()
    only = [word for feature in wanted for word in ("--feature", feature)]
    os.chdir(folder)
    try:
        program(["conform", "--json", *only, *words], stdout=out, stderr=complaint)
    finally:
        os.chdir(here)
    try:
        found: Results = json.loads(out.getvalue())["features"]
    except ValueError:
        return complaint.getvalue().strip() or out.getvalue()
    return found


def judge(results: Results) -> None:
    """Pass, skip, or fail with what is wrong, of one feature in every type."""
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
        by_mistake.setdefault((feature["mistake"] or feature["status"], feature["explanation"]), []).append(
            feature
        )
    for (mistake, explanation), same in by_mistake.items():
        first, types = same[0], ", ".join(feature["dtype"] for feature in same)
        lines = [f"{mistake}: {first['feature']}, in {types}", explanation, first["case"], first["replay"]]
        yield "\n".join(filter(None, lines))
