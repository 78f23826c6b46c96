"""The corpus of hostile dumps: generators that each make one file and say what it tries."""

from collections.abc import Callable

GENERATORS: dict[str, Callable[[], bytes]] = {}


def hostile(make: Callable[[], str | bytes]) -> Callable[[], bytes]:
    """Enter a generator into the corpus under its name."""

    def as_bytes() -> bytes:
        made = make()
        return made.encode() if isinstance(made, str) else made

    GENERATORS[make.__name__] = as_bytes
    return as_bytes
