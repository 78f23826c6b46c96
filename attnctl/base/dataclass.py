"""The `dataclass` of the standard library, made in a third of the time.

That one compiles six methods for each class, which is a tenth of a toy run. Here only `__init__` is
compiled, and the other methods are closures over the names of the fields. What builds on a class of
one kind is of the same kind: Python refuses to put a frozen one on top of one that is not.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414  (what a type checker knows)
else:

    def dataclass(  # noqa: ANN201
        cls: type | None = None,
        /,
        *,
        frozen: bool = False,
        eq: bool = True,
        repr: bool = True,  # noqa: A002
        kw_only: bool = False,
    ):
        """As in `dataclasses`, with the options that we use."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, eq=eq, repr=repr, kw_only=kw_only)
        dataclasses.dataclass(eq=False, repr=False, kw_only=kw_only)(cls)
        methods = {
            **(show(cls) if repr else {}),
            **(compare(cls, frozen=frozen) if eq else {}),
            **(freeze(cls) if frozen else {}),
        }
        for name in methods.keys() - vars(cls).keys():
            setattr(cls, name, methods[name])
        return cls


Methods = dict[str, Any]


def show(cls: type) -> Methods:
    names = [each.name for each in dataclasses.fields(cls) if each.repr]

    def text(self: object) -> str:
        said = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({said})"

    return {"__repr__": text}


def compare(cls: type, *, frozen: bool) -> Methods:
    names = [each.name for each in dataclasses.fields(cls) if each.compare]
    values = attrgetter(*names) if names else type

    def equal(self: object, other: object) -> bool:
        return values(self) == values(other) if type(self) is type(other) else NotImplemented

    def number(self: object) -> int:
        return hash(values(self))

    return {"__eq__": equal, "__hash__": number if frozen else None}


def freeze(cls: type) -> Methods:
    """Each field is set once, by `__init__`; an instance of just this class has no other attributes."""
    names = {each.name for each in dataclasses.fields(cls)}

    def set_once(self: object, name: str, value: object) -> None:
        if name in vars(self) if name in names else type(self) is cls:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def refuse(self: object, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    return {"__setattr__": set_once, "__delattr__": refuse}
