"""The `dataclass` of the standard library, made in a tenth of the time.

That one compiles seven methods for each class, which is an eighth of a toy run. Here they are closures
over the names of the fields. What builds on a class of one kind is of the same kind: Python refuses to
put a frozen one on top of one that is not.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING
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
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, eq=eq, repr=repr, kw_only=kw_only)
        cls.__doc__ = cls.__doc__ or cls.__name__  # else that one parses a signature for one
        dataclasses.dataclass(init=False, eq=False, repr=False, kw_only=kw_only)(cls)
        methods = {
            **initialize(cls),
            **(repr_method(cls) if repr else {}),
            **(compare(cls, frozen=frozen) if eq else {}),
            **(freeze(cls) if frozen else {}),
        }
        for name in methods.keys() - vars(cls).keys():
            setattr(cls, name, methods[name])
        return cls


Methods = dict[str, Any]


def initialize(cls: type) -> Methods:
    fields = [field for field in dataclasses.fields(cls) if field.init]
    names = frozenset(field.name for field in fields)
    in_order = [field.name for field in fields if not field.kw_only]
    defaults = {field.name: field.default for field in fields if field.default is not MISSING}
    factories = {field.name: make for field in fields if (make := field.default_factory) is not MISSING}
    needed = names - defaults.keys() - factories.keys()
    after = hasattr(cls, "__post_init__")

    def fill(self: Any, *args: Any, **named: Any) -> None:
        given = dict(zip(in_order, args)) if args else named  # noqa: B905  (counted below)
        if args and named:
            given.update(named)
        if len(given) != len(args) + len(named) or not needed <= given.keys() <= names:
            known = ", ".join(field.name for field in fields)
            raise TypeError(f"{cls.__name__}({known}) was given {len(args)} values and {list(named)}")
        for name, make in factories.items():
            if name not in given:
                given[name] = make()
        vars(self).update({**defaults, **given})
        if after:
            self.__post_init__()

    return {"__init__": fill}


def repr_method(cls: type) -> Methods:
    names = [field.name for field in dataclasses.fields(cls) if field.repr]

    def text(self: object) -> str:
        said = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({said})"

    return {"__repr__": text}


def compare(cls: type, *, frozen: bool) -> Methods:
    names = [field.name for field in dataclasses.fields(cls) if field.compare]
    values = attrgetter(*names) if names else type

    def equal(self: object, other: object) -> bool:
        return values(self) == values(other) if type(self) is type(other) else NotImplemented

    def number(self: object) -> int:
        return hash(values(self))

    return {"__eq__": equal, "__hash__": number if frozen else None}


def freeze(cls: type) -> Methods:
    """Each field is set once, by `__init__`; an instance of just this class has no other attributes."""
    names = {field.name for field in dataclasses.fields(cls)}

    def set_once(self: object, name: str, value: object) -> None:
        if name in vars(self) if name in names else type(self) is cls:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def refuse(self: object, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    return {"__setattr__": set_once, "__delattr__": refuse}
