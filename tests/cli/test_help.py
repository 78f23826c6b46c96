"""Help, suggestions and hints: what a person reads who does not know the command line yet."""

import json
import pickle
import re
import shlex

import pytest
from commands import commands

from attnctl.base.errors import AttnError
from attnctl.base.rooms import all_verbs
from attnctl.base.words import one_of
from attnctl.cli.command import with_values

VERBS = all_verbs()
DAILY = {path: words for verb in VERBS.values() for path, words in verb.daily.items()}
PAGES = [[], *([name] for name in VERBS), *(name.split() for name, _ in commands() if " " in name)]


def examples_in(page):
    return re.findall(r"^  (attnctl .*)$", page.partition("\nExamples:\n")[2], re.MULTILINE)


@pytest.mark.parametrize("args", PAGES, ids=" ".join)
def test_every_help_ends_with_examples_of_its_command(call, args):
    done = call(*args, "--help")
    assert done.code == 0
    found = examples_in(done.out)
    assert found
    assert any(each.startswith(" ".join(["attnctl", *args])) for each in found)


LONG = [["mistakes"], ["mutants"]]
"""Examples that write a page for each mistake, or carry each out on thousands of numbers."""


@pytest.mark.parametrize(
    "args",
    [pytest.param(page, marks=[pytest.mark.slow] if page in LONG else []) for page in PAGES],
    ids=" ".join,
)
def test_every_example_is_understood(call, args):
    """Each runs, or stops at a file that only the reader has: no option or example of it is unknown."""
    for example in examples_in(call(*args, "--help").out):
        words = shlex.split(re.split(r" (?:&&|\|\||>|\|) ", example)[0])
        done = call(*words[1:])
        lacking = "No such file|no such file|cannot be read|needs a terminal"
        runs = done.code == 0 or (done.code, done.err) == (1, "")
        assert runs or re.search(lacking, done.err), done.err


@pytest.mark.parametrize("args", PAGES, ids=" ".join)
def test_every_help_is_a_page(call, args):
    page = call(*args, "--help", COLUMNS="80").out
    assert page.count("\n") <= (40 if args else 50)  # every verb has a line of the first page
    assert page.startswith(" ".join(["Usage: attnctl", *args, "[OPTIONS]"]))
    assert not re.search(r"<[a-z]+\[|{", page.partition("\n")[0])


GROUPS = sorted({name.split()[0] for name, _ in commands() if " " in name})


@pytest.mark.parametrize("group", GROUPS)
def test_the_commands_of_a_group_are_described_in_full(call, group):
    page = call(group, "--help", COLUMNS="60").out
    assert not re.search(r"\.\.\.|…$", page.partition("Commands:")[2].partition("Examples:")[0])
    assert " ".join(page.split()).count(". ") >= 3


@pytest.mark.parametrize("path", DAILY)
def test_what_the_first_page_leaves_out_is_counted_and_there(call, path):
    page, every = (call(*path.split(), flag).out for flag in ("--help", "--help-all"))
    count = int(re.search(r"--help-all +All options: (\d+) more", page)[1])
    shown, known = (
        set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", text, re.MULTILINE)) for text in (page, every)
    )
    assert shown - {"--help-all"} < known
    assert len(known - shown - {"--help"}) == count
    assert len(shown) - 1 == len(DAILY[path].split())


def test_options_stand_in_sections(call):
    page = call("run", "--help-all").out
    titles = re.findall(r"^([A-Z][a-z -]+):$", page, re.MULTILINE)
    assert titles == [
        "Arguments", "Options", "Sentence", "A trained model", "Attention", "Log-sum-exp and gradients", "Memory and cost",
        "What if", "What to show", "Output", "Examples",
    ]  # fmt: skip
    assert page.index("Output:") < page.index("--format") < page.index("Examples:")


def test_commands_stand_in_groups(call):
    page = call("--help").out
    found = re.findall(r"^([A-Z][a-z]+):\n((?:  .+\n)+)", page, re.MULTILINE)
    groups = {title: re.findall(r"^  ([a-z]+) ", lines, re.MULTILINE) for title, lines in found}
    for name, verb in VERBS.items():
        assert name in groups[verb.section]
    listed = [name for title, names in groups.items() if title != "Examples" for name in names]
    assert listed == list(VERBS)


def test_help_all_behind_a_dash_is_a_sentence(call):
    assert call("run", "--json", "--", "--help-all").out.startswith("{")


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_help_is_as_wide_as_the_terminal(call, width):
    page = call("run", "--help-all", COLUMNS=str(width)).out.partition("\nExamples:")[0]
    longest = max(map(len, page.splitlines()))
    assert longest <= width
    assert longest > width - 20 or width == 200


# ruff: noqa: E501  (a row a line)
SUGGESTED = [
    (["config"], "attnctl: config: no command; there are init, check and schema (see attnctl config --help)"),
    (["zygote"], f"attnctl: No such command 'zygote'; there are {one_of(list(VERBS), 'and', most=99)} (see attnctl --help)"),
    (["rnu", "x"], "attnctl: No such command 'rnu'; did you mean run? (see attnctl --help)"),
    (["config", "inti"], "attnctl: config: No such command 'inti'; did you mean init? (see attnctl config --help)"),
    (["I love AI"], "attnctl: No such command 'I love AI'; type: attnctl run 'I love AI' (see attnctl --help)"),
    (["run", "--haed", "2", "x"], "attnctl: run: No such option: --haed (Possible options: --head, --heads, --padded) (see attnctl run --help)"),
    (["run", "--zzzz", "x"], "attnctl: run: No such option: --zzzz (see attnctl run --help)"),
    (["run", "x", "--heads"], "attnctl: run: Option '--heads' requires an argument (see attnctl run --help)"),
    (["run", "x", "--head", "2"], "attnctl: --head: no head 2 in this trace; it has head 0 only; --heads N asks for N heads"),
    (["check", "x", "--head", "2"], "attnctl: check: No such option: --head (Possible options: --heads, --kv-heads, --theta) (see attnctl check --help)"),
    (["examples", "india-is-grate"], "attnctl: no example 'india-is-grate'; did you mean india-is-great or india-is-great-2-heads?"),
]  # fmt: skip


@pytest.mark.parametrize(("args", "message"), SUGGESTED, ids=lambda value: str(value)[:40])
def test_the_nearest_is_suggested_and_no_name_is_said_twice(call, args, message):
    assert call(*args) == (2, "", message + "\n")


@pytest.mark.parametrize("verb", ["run", "show", "diff"])
def test_the_nearest_step_is_suggested(call, verb):
    call("run", "I love AI", "-o", "a.json")
    files = {"run": ["I love AI"], "show": ["a.json"], "diff": ["a.json", "a.json"]}[verb]
    done = call(verb, *files, "--step", "atention_weights")
    assert (done.code, done.out) == (2, "")
    assert "'atention_weights'" in done.err
    assert "attention_weights" in done.err.replace("'atention_weights'", "")
    assert verb == "diff" or done.err.endswith("; did you mean attention_weights?\n")


def test_words_without_quotes_are_one_sentence(call):
    done = call("run", "I", "love", "AI", "--json")
    assert (done.code, json.loads(done.out)["sentence"]) == (0, "I love AI")
    assert done.err == (
        "attnctl: note: read as one sentence, 'I love AI'; for a sentence each: "
        "printf '%s\\n' I love AI | attnctl run -\n"
    )
    for fine, count in ((["I love AI"], 1), (["I"], 1), (["I love", "AI"], 2)):
        done = call("run", *fine, "--format", "jsonl")
        assert (done.out.count("\n"), done.err) == (count, "")


@pytest.mark.parametrize(
    ("args", "completed"),
    [
        (["--backward"], ["--backward", "its own"]),
        (["--backward", "--json"], ["--backward", "its own", "--json"]),
        (["--backward", "f.py:g", "--json"], ["--backward", "f.py:g", "--json"]),
        (["--", "--backward"], ["--", "--backward"]),
        (["a", "--json"], ["a", "--json"]),
    ],
)
def test_the_value_of_an_option_that_may_stand_without(args, completed):
    assert with_values(args, ["--backward", "--json"]) == completed
    assert with_values(args, []) == args  # of a command where it takes none


def test_problems_stay_apart_from_one_process_to_another():
    found = pickle.loads(pickle.dumps(AttnError(["one", "two"])))
    assert found.problems == ("one", "two")
