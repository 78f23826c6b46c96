"""Hold a target to what is asked: every feature, a merge, or one case again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from attnctl.base.errors import AttnError, raise_all
from attnctl.inputs.config.settings import Settings
from attnctl.record import Trace
from attnctl.verbs.conform.call import Target
from attnctl.verbs.conform.captured import read_calls
from attnctl.verbs.conform.declared import CLAIMS, XFAIL, find_senseless, read_file, unknown_names
from attnctl.verbs.conform.features import INPUTS_KEPT, MERGES, NAMES, OF_CAPTURES
from attnctl.verbs.conform.merge import RETURNS as OF_MERGE
from attnctl.verbs.conform.merge import MergeSuite, hold_merge
from attnctl.verbs.conform.profile import LIBRARIES, TYPES, Request, TargetProfile
from attnctl.verbs.conform.relations import INVARIANTS, RELATIONS
from attnctl.verbs.conform.report import Conformance
from attnctl.verbs.conform.results import read_saved
from attnctl.verbs.conform.run import Progress, Run, replay
from attnctl.verbs.conform.suite import Suite

FRAMEWORKS = ("numpy", "torch", "jax")


def make_request(
    *,
    given: Mapping[str, Any],
    always: Callable[[Settings], Settings] = lambda claimed: claimed,
    like: str | None = None,
    claims: str | None = None,
    xfail: str | None = None,
    dtypes: Sequence[str] = (),
    inputs: str | Sequence[Trace] | None = None,
    **asked: Any,
) -> Request:
    """Read what is asked for. Raises AttnError with every name that there is not.

    `given` holds fields of the profile as claims do, without `always`, which lays options over what
    claims say is always on; `inputs` are captured calls; `asked` are fields of the request.
    """
    known = (*MERGES, INPUTS_KEPT) if asked.get("merge") else NAMES
    calls = read_calls(inputs) if inputs is not None else ()
    only = [RELATIONS if name == INVARIANTS else (name,) for name in asked.get("only", ())]
    asked["only"] = tuple(chain(*only))
    known += OF_CAPTURES if calls else ()
    raise_all(
        [
            *unknown_names("like", [like] if like else (), list(LIBRARIES)),
            *unknown_names("feature", asked.get("only", ()), known),
            *unknown_names("dtype", [word for name in dtypes for word in name.split(":", 1)], list(TYPES)),
            *unknown_names("framework", [asked.get("framework", "numpy")], FRAMEWORKS),
        ]
    )
    profile = (LIBRARIES[like] if like else TargetProfile()).lay_over(read_file(claims, CLAIMS))
    handed = {computed: own for own, colon, computed in (name.partition(":") for name in dtypes) if colon}
    computed = [name.rpartition(":")[2] for name in dtypes]
    profile = profile.lay_over({**given, "handed": handed, "always": always(profile.always)})
    raise_all(f"{profile.always.where(path)}: {what}" for path, what in find_senseless(profile.always))
    if asked.get("merge") and profile.returns not in {(), *OF_MERGE}:
        ways = " or ".join(map(",".join, OF_MERGE))
        raise AttnError(f"returns: {','.join(profile.returns)} is no merge; write {ways}")
    said = {"like": like, "returns": ",".join(given.get("returns", ())), "claims": claims}
    said |= {name: asked.get(name) for name in ("framework", "device", "timeout")}
    words = [(f"--{name}", str(value)) for name, value in said.items() if value and value != "numpy"]
    words += [("--map", f"{theirs}={ours}") for theirs, ours in asked.get("renames", {}).items()]
    return Request(
        profile=profile,
        flags=tuple(chain(*words)),
        dtypes=tuple(name for name in TYPES if name in (computed or TYPES)),
        xfail=read_file(xfail, XFAIL),
        calls=calls,
        **asked,
    )


def hold_target(
    target: Target, request: Request, back: Target | None = None, progress: Progress | None = None
) -> Conformance:
    """Hold a target, its gradients by `back`, to what is asked. Raises AttnError if it cannot be called."""
    progress = progress or (lambda _done, _total: None)
    if request.merge:
        merges = MergeSuite(target, request)
        with merges.opened():
            return hold_merge(merges, progress)
    saved = read_saved(request.replay) if request.replay else None
    if saved is not None:  # it is called as it was in that case
        request = replace(request, profile=request.profile.lay_over(saved[2]))
    suite = Suite(target, request)
    with suite.opened(back):
        return Run(suite).carry_out(progress) if saved is None else replay(suite, saved)
