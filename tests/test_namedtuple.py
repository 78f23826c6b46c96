"""Our `NamedTuple` makes what the standard library's makes."""

from __future__ import annotations

import pickle
import typing
from collections.abc import Iterator

import pytest

from attnctl.base.namedtuple import NamedTuple


class Ours(NamedTuple):
    """A window."""

    left: int
    right: int = 2
    names: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return self.left + self.right

    def each(self) -> Iterator[int]:
        yield from (self.left, self.right)


class Pythons(typing.NamedTuple):
    """A window."""

    left: int
    right: int = 2
    names: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return self.left + self.right

    def each(self) -> Iterator[int]:
        yield from (self.left, self.right)


class Empty(NamedTuple):
    pass


def behaviour(made):
    one = made(1, names=("a",))
    return {
        "bases": made.__bases__,
        "fields": (made._fields, made._field_defaults, made.__match_args__),
        "doc": made.__doc__,
        "types": typing.get_type_hints(made),
        "values": (tuple(one), one == (1, 2, ("a",)), hash(one), one.size, list(one.each())),
        "said": repr(one).removeprefix(made.__name__),
        "other": (one._replace(left=3).left, one._asdict(), made._make([1, 2, 3])),
    }


def test_a_class_is_that_of_the_standard_library():
    assert behaviour(Ours) == behaviour(Pythons)
    assert Ours.__module__ == __name__
    assert Ours.__qualname__ == "Ours"


@pytest.mark.parametrize(
    "call", [Ours, lambda: Ours(1, 2, (), 4), lambda: Ours(1, left=1), lambda: Ours(other=1)]
)
def test_a_call_that_does_not_fit_is_refused(call):
    with pytest.raises(TypeError):
        call()


def test_an_instance_survives_a_pickle():
    assert pickle.loads(pickle.dumps(Ours(1))) == Ours(1)


def test_a_class_without_fields_is_an_empty_tuple():
    assert Empty() == ()


def test_a_field_without_a_default_stands_first():
    with pytest.raises(TypeError, match=r"^Wrong: a field without a default"):

        class Wrong(NamedTuple):
            left: int = 1
            right: int
