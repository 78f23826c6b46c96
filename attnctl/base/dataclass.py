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
        fields = find_fields(cls, kw_only=kw_only)
        methods = {
            **initialize(cls, fields),
            **(repr_method(fields) if repr else {}),
            **(compare(fields, frozen=frozen) if eq else {}),
            **(freeze(cls, fields) if frozen else {}),
        }
        for name in methods.keys() - vars(cls).keys():
            setattr(cls, name, methods[name])
        return cls


Methods = dict[str, Any]
Fields = tuple[dataclasses.Field[Any], ...]


def find_fields(cls: type, *, kw_only: bool) -> Fields:
    """The fields of a class, as the standard library finds them.

    That one matches each annotation that is a text against three patterns. It is shown types in their
    place, and no class variable.
    """
    make = dataclasses.dataclass(init=False, eq=False, repr=False, kw_only=kw_only)
    texts = vars(cls).get("__annotations__")
    if not texts:  # none, or as Python 3.14 has those that are no texts
        return dataclasses.fields(make(cls))

    of_fields = {name: text for name, text in texts.items() if not is_of_class(text)}
    types = {name: object if isinstance(text, str) else text for name, text in of_fields.items()}
    cls.__annotations__ = types
    make(cls)
    cls.__annotations__ = texts

    fields = dataclasses.fields(cls)
    for field in fields:
        field.type = of_fields.get(field.name, field.type)
    return fields


def is_of_class(annotation: object) -> bool:
    return isinstance(annotation, str) and annotation.startswith("ClassVar")


def initialize(cls: type, every: Fields) -> Methods:
    fields = [field for field in every if field.init]
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


def repr_method(fields: Fields) -> Methods:
    names = [field.name for field in fields if field.repr]

    def text(self: object) -> str:
        said = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({said})"

    return {"__repr__": text}


def compare(fields: Fields, *, frozen: bool) -> Methods:
    names = [field.name for field in fields if field.compare]
    values = attrgetter(*names) if names else type

    def equal(self: object, other: object) -> bool:
        return values(self) == values(other) if type(self) is type(other) else NotImplemented

    def number(self: object) -> int:
        return hash(values(self))

    return {"__eq__": equal, "__hash__": number if frozen else None}


def freeze(cls: type, fields: Fields) -> Methods:
    """Each field is set once, by `__init__`; an instance of just this class has no other attributes."""
    names = {field.name for field in fields}

    def set_once(self: object, name: str, value: object) -> None:
        if name in vars(self) if name in names else type(self) is cls:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def refuse(self: object, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    return {"__setattr__": set_once, "__delattr__": refuse}
