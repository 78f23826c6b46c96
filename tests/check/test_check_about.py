"""A page for each mistake: `check --about NAME`, its example carried out and judged."""

import re

import pytest

from attnctl.mistakes import CATALOGUE
from attnctl.mistakes.examples import KINDS, PlantedRun, carry_out_example
from attnctl.verbs.check import about

FIRST = {each.name: each for each in reversed(CATALOGUE)}


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", about.mistake_names()[::30])
def test_the_example_of_a_page_shows_its_mistake_and_nothing_else(name):
    page = about.mistake_page(name)
    assert page.report.mistake == name
    assert [each.mistake for each in page.report.findings] == [name]


@pytest.mark.parametrize("name", about.mistake_names())
def test_every_mistake_says_why_and_shows_lines(name):
    mistake = FIRST[name]
    assert re.fullmatch(r"\S.*[.?]", mistake.why), "a sentence says why people make it"
    compile(mistake.example, name, "exec")
    assert re.fullmatch(r"((^|; )[\w.-]+/[\w.-]+#\d+(, #\d+)*)*", mistake.seen)
    assert set(mistake.steps) & set(re.findall(r"\w+", mistake.example)) or len(mistake.steps) > 1


@pytest.mark.sample(9)
@pytest.mark.parametrize("kind", KINDS)
def test_without_its_lines_an_example_agrees(kind):
    mistake = next(each for each in CATALOGUE if each.meant == kind)
    example = carry_out_example(mistake)
    same = PlantedRun(example.meant, example.given, example.right, example.right)
    assert about.judge(same).agrees
