"""The `NamedTuple` of the standard library, made in less than half the time.

That one compiles the annotation of each field, which nothing asks for, and some fifty such classes are
made before a command begins. Modules that every command imports take theirs from here; what the class
is made of is what `collections.namedtuple` makes in either case.
"""

from __future__ import annotations

from collections import namedtuple
from types import new_class
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414  (what a type checker knows)
else:
    OF_THE_CLASS = {"__module__", "__qualname__", "__annotations__"}
    """What a body has that is no method of the class."""

    class NamedTupleMeta(type):
        """Makes a tuple with names of a class whose fields are annotated."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:  # noqa: ARG004
            if "__annotations__" not in body:
                return make_by_typing(name, body)

            fields = body["__annotations__"]
            defaults = {field: body[field] for field in fields if field in body}
            made = namedtuple(name, fields, defaults=defaults.values(), module=body["__module__"])  # noqa: PYI024
            if made._field_defaults.keys() != defaults.keys():
                raise TypeError(f"{name}: a field without a default stands behind one with a default")

            made.__annotations__ = fields
            for key, value in body.items():
                if key not in OF_THE_CLASS and key not in defaults:
                    setattr(made, key, value)
            return made

    def make_by_typing(name: str, body: dict[str, Any]) -> type:
        """The class of a body without annotations, or of one that Python 3.14 has not evaluated."""
        from typing import NamedTuple as Typed

        return new_class(name, (Typed,), exec_body=lambda own: own.update(body))

    NamedTuple = type.__new__(NamedTupleMeta, "NamedTuple", (), {})
