"""Frozen dataclasses that cost little to make.

`dataclass(frozen=True)` compiles six functions for every class, half a millisecond each: with two
dozen classes that was a tenth of the time `attnctl run` took. Here only `__init__` is compiled;
what the others do is the same for every class and is written once. `fields` and `replace` work as
on any dataclass.
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

Class = TypeVar("Class", bound=type)

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: object) -> Any:
        """For type checkers alone (and in `typing` from Python 3.11)."""
        return lambda function: function


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: Class) -> Class:
    """A dataclass whose fields are set once; equal where class and compared fields are."""
    dataclass(eq=False, repr=False)(cls)
    for name, method in SHARED.items():
        if name not in cls.__dict__:
            setattr(cls, name, method)
    return cls


def compared(self: Any) -> tuple[Any, ...]:
    """The values that make one equal to another."""
    return tuple(getattr(self, each.name) for each in fields(self) if each.compare)


def set_once(self: Any, name: str, value: Any) -> None:
    """Refuse to set a field again; `__init__` sets each the first time."""
    if name in self.__dict__:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def equal(self: Any, other: object) -> bool:
    """Whether the other is of this very class, with the same values."""
    return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented


def hashed(self: Any) -> int:
    """A hash for a value whose fields have one."""
    return hash(compared(self))


def shown(self: Any) -> str:
    """The call that makes it, for the reader of a traceback."""
    text = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({text})"


SHARED = {"__setattr__": set_once, "__eq__": equal, "__hash__": hashed, "__repr__": shown}
