"""From words to a target and to what is asked of it: for the command line and for Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from attnctl.base.errors import AttnError, raise_all
from attnctl.base.words import nearest
from attnctl.inputs.config.settings import Settings
from attnctl.verbs.conform.call import Framework
from attnctl.verbs.conform.case import TYPES
from attnctl.verbs.conform.claims import Claims, read_claims, read_xfail
from attnctl.verbs.conform.command import Command
from attnctl.verbs.conform.declared import senseless
from attnctl.verbs.conform.extra_outputs import RETURNS
from attnctl.verbs.conform.features import NAMES
from attnctl.verbs.conform.library import LIBRARIES
from attnctl.verbs.conform.options import OPTIONS
from attnctl.verbs.conform.suite import Asked
from attnctl.verbs.conform.target import InProcess, Pool, Target, target_of

FRAMEWORKS = ("numpy", "torch", "jax")

SECONDS = 20.0
"""What one call may take."""


def ask_of(  # noqa: PLR0913  (everything that can be asked)
    *,
    given: Mapping[str, Any],
    always: Callable[[Settings], Settings] = lambda claimed: claimed,
    like: str | None = None,
    names: Mapping[str, str],
    returns: str | Sequence[str] | None = None,
    claims: str | None = None,
    xfail: str | None = None,
    features: Sequence[str] = (),
    dtypes: Sequence[str] = (),
    quick: bool = False,
    save: str | None = None,
    called: tuple[Sequence[str], Sequence[str]] = ((), ()),
    jobs: int = 1,
) -> Asked:
    """How the suite is to be run. Raises AttnError with every name that there is not.

    `given` holds what arrays are taken (see `declared.ARRAYS`); `always` lays options over what claims
    say is always on.
    """
    raise_all(
        [
            *unknown_names("like", [like] if like else (), [name for name in LIBRARIES if name]),
            *unknown_names("feature", features, NAMES),
            *unknown_names("dtype", dtypes, list(TYPES)),
        ]
    )
    library = LIBRARIES[like or ""]
    claimed = read_claims(claims) if claims else Claims()
    said = claimed.said.over(given, always(claimed.said.always))
    raise_all(f"{said.always.where(path)}: {what}" for path, what in senseless(said.always))
    return Asked(
        said=said if said.layout else replace(said, layout=library.layout or None),
        library=library,
        renames=names,
        dtypes=tuple(name for name in TYPES if name in (dtypes or TYPES)),
        only=tuple(features),
        quick=quick,
        claims=claimed,
        returns=read_returns(returns) if returns else claimed.returns,
        xfail=read_xfail(xfail) if xfail else {},
        save=save,
        called=(tuple(called[0]), tuple(called[1])),
        jobs=jobs,
    )


def read_returns(said: str | Sequence[str]) -> tuple[str, ...]:
    """The names of outputs, the output first. Raises AttnError for others."""
    names = tuple(said.split(",") if isinstance(said, str) else said)
    raise_all(unknown_names("returns", names, RETURNS))
    if not names or names[0] != RETURNS[0]:
        raise AttnError(
            f"--returns {','.join(names)}: the output comes first; write {RETURNS[0]},… or wrap it"
        )
    return names


def unknown_names(what: str, given: Iterable[str], there: Sequence[str]) -> list[str]:
    """Names that there are not, each with the one that is meant."""
    out = []
    for name in given:
        near = nearest(str(name), list(there), most=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(there)}"
        if name not in there:
            out.append(f"--{what} {name}: there is none of this name; {hint}")
    return out


def target_for(
    target: str | Sequence[str] | Callable[..., Any],
    framework: str = "numpy",
    device: str | None = None,
    timeout: float | None = None,
    jobs: int = 1,
    options: Sequence[str] = (),
) -> tuple[Target, str]:
    """What is called, and its name; a command has those of `options` in its file.

    Raises AttnError for what is no target.
    """
    raise_all(unknown_names("framework", [framework], FRAMEWORKS))
    own = Framework(framework, device or "")
    if callable(target):
        return InProcess(target, own), getattr(target, "__qualname__", type(target).__name__)
    limit = timeout or SECONDS
    if isinstance(target, str):
        made: list[Target] = [target_of(target, own, limit) for _ in range(jobs)]
        return (made[0] if jobs == 1 else Pool(made)), target
    if not isinstance(target, Sequence):
        raise AttnError(f"{target!r}: not a target; give a function, or the name of one, module:function")
    if framework != "numpy":
        raise AttnError(f"--framework {framework}: a command reads a file; leave it out")
    command: Target = Command(target, [name for name in options if name in OPTIONS], limit)
    return (command if jobs == 1 else Pool([command] * jobs)), " ".join(target)
