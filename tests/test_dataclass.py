"""Our `dataclass` makes what the standard library's makes."""

import dataclasses
import pickle
import sys
import typing
from dataclasses import FrozenInstanceError, field
from types import ModuleType

import pytest

from attnctl.base.dataclass import dataclass


def classes(make):
    """A class of each kind that the house has, made by `make`, with the arguments of two instances."""

    @make(frozen=True)
    class Nothing:
        pass

    @make(frozen=True)
    class Window:
        left: int
        right: int = 2
        where: str = field(default="", compare=False, repr=False)
        names: list = field(default_factory=list, compare=False)

    @make(frozen=True)
    class Below(Window):
        more: tuple = ()

    @make(frozen=True, kw_only=True)
    class Named:
        scale: float

    @make
    class Open:
        rows: list

    @make(eq=False, repr=False)
    class Same:
        size: int

    @make(frozen=True)
    class Own:
        size: int

        def __eq__(self, other):
            return True

        def __repr__(self):
            return "own"

        def __hash__(self):
            return 7

    return [
        (Nothing, {}, {}),
        (Window, {"left": 1, "where": "here"}, {"left": 1}),
        (Window, {"left": 1}, {"left": 2}),
        (Below, {"left": 1, "more": (3,)}, {"left": 1}),
        (Named, {"scale": 1.0}, {"scale": 1}),
        (Open, {"rows": [1]}, {"rows": [1]}),
        (Same, {"size": 1}, {"size": 1}),
        (Own, {"size": 1}, {"size": 2}),
    ]


def attempt(act):
    """What comes of it: the result, or the class of the error."""
    try:
        return act()
    except Exception as error:  # noqa: BLE001  (which one it is, is compared)
        return type(error)


def calls(made, first):
    """Calls with too many arguments, too few, others, and some of them by their places."""
    yield lambda: made(1, 2, 3, 4, 5, 6)
    yield made
    yield lambda: made(**first, nothing=1)
    yield lambda: made(1, **first)
    yield lambda: made(*first.values())
    yield lambda: made(*list(first.values())[:1], **dict(list(first.items())[1:]))


def behaviour(made, first, second):
    """All that can be seen of two instances of a class."""
    a, b = made(**first), made(**second)
    hashed = attempt(lambda: hash(a) == hash(b))
    return {
        "fields": [each.name for each in dataclasses.fields(made)],
        "match": made.__match_args__,
        "repr": repr(a) if made.__repr__ is not object.__repr__ else None,
        "equal": (a == b, a != b, a == dataclasses.replace(a), a == 3),
        "hash": True if a == b and made.__name__ == "Nothing" else hashed,
        "set": [attempt(lambda name=name: setattr(a, name, 9)) for name in (*first, "anything")],
        "delete": [attempt(lambda name=name: delattr(b, name)) for name in second],
        "kept": vars(a),
        "wrong": [attempt(lambda call=call: vars(call())) for call in calls(made, first)],
        "state": pickle.loads(pickle.dumps(vars(b))),
    }


PAIRS = list(zip(classes(dataclass), classes(dataclasses.dataclass), strict=True))


@pytest.mark.parametrize(("ours", "pythons"), PAIRS, ids=lambda case: case[0].__name__)
def test_a_class_is_that_of_the_standard_library(ours, pythons):
    assert behaviour(*ours) == behaviour(*pythons)


def test_another_class_with_the_same_fields_is_another_value():
    (_, (window, *_), *_), (_, (other, *_), *_) = classes(dataclass), classes(dataclass)
    assert window(1) != other(1)


def test_what_builds_on_a_frozen_class_may_keep_more_but_moves_no_field():
    window = classes(dataclass)[1][0]

    class Kept(window):
        pass

    kept = Kept(1)
    kept.seen = True
    with pytest.raises(FrozenInstanceError, match=r"^cannot assign to field 'left'$"):
        kept.left = 2


WITH_TEXTS = """
from __future__ import annotations
from dataclasses import field
from typing import ClassVar

@make(frozen=True)
class Noted:
    left: int
    kind: ClassVar[str] = "window"
    names: dict[str, int | None] = field(default_factory=dict)
"""


def test_annotations_that_are_texts_stay_as_they_are(monkeypatch):
    made = []
    for make in (dataclass, dataclasses.dataclass):
        module = ModuleType(make.__module__ + ".noted")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        module.make = make
        exec(WITH_TEXTS, vars(module))
        made.append(module.Noted)

    ours, pythons = made
    assert ours.__annotations__ == pythons.__annotations__
    assert typing.get_type_hints(ours) == typing.get_type_hints(pythons)
    for own, theirs in zip(dataclasses.fields(ours), dataclasses.fields(pythons), strict=True):
        assert (own.name, own.type, own.kw_only) == (theirs.name, theirs.type, theirs.kw_only)
        assert own.default_factory == theirs.default_factory
    assert ours(left=1) == dataclasses.replace(ours(left=2), left=1)
    assert ours.kind == "window"
