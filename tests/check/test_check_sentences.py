"""No sentence of `check` is false: on 500 wrong dumps that are drawn, each is held to the numbers.

Three in five have one step edited in a way that no mistake is named after, the others a mistake.
"""

import pytest
from slips import draw_mistake, draw_slip, false_of

DRAWN = 500
MISTAKEN = (3, 4)
"""The ends, of five, of the numbers of dumps in which a mistake is made."""


@pytest.mark.sample(26)
@pytest.mark.parametrize("number", range(DRAWN))
def test_no_sentence_is_false(number):
    draw = draw_mistake if number % 5 in MISTAKEN else draw_slip
    wrong = draw(number)
    assert false_of(wrong) == [], wrong
