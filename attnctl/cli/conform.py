"""attnctl conform: anyone's attention function, held to a suite of cases."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from attnctl.base.errors import AttnError, Exit
from attnctl.base.setting import Given
from attnctl.base.values import POSITIVE, whole, words
from attnctl.cli.app import LEFT_OUT, make_app
from attnctl.cli.options import SECTIONS, bars, command, findings_option, option, renames, split_outputs
from attnctl.verbs.conform.declared import ALWAYS, ARRAYS, TARGET
from attnctl.verbs.conform.profile import USUAL

if TYPE_CHECKING:
    from attnctl.verbs.conform.declared import Request
    from attnctl.verbs.conform.report import Conformance

app = make_app()


NOT_OF_MERGE = (
    *("like", "map", "backward", "claims", "xfail", "suite", "replay", "jobs", "save"),
    *ARRAYS,
    *ALWAYS,
)
"""The options that do not go with --merge."""


class TargetOptions(NamedTuple):
    """The options that say how the target is called."""

    like: Annotated[
        str | None,
        option(
            "It takes its options as this library's attention does: sdpa, flash, onnx, jax or transformers."
        ),
        words("sdpa", "flash", "onnx", "jax", "transformers"),
    ] = None
    map: Annotated[
        list[str] | None,
        option(
            "A parameter of it by our name (causal, window, …); may be repeated.", metavar="THEIRS=OURS"
        ),
    ] = None
    returns: Annotated[
        str | None,
        option("What it returns, in order, like output,logsumexp; - is not judged.", metavar="NAME,…"),
    ] = None
    backward: Annotated[
        str | None,
        option(
            "Judge gradients, too: those of torch or jax, of a target that takes d_output, or of TARGET2.",
            metavar="[TARGET2]",
        ),
    ] = None
    framework: Annotated[
        str | None,
        option("Whose arrays it takes: numpy (the default), torch or jax."),
        words("numpy", "torch", "jax"),
    ] = None
    device: Annotated[str | None, option("Where they are, like cuda or mps.", metavar="D")] = None
    timeout: Annotated[
        float | None,
        option("Seconds that one call may take before it counts as hanging (20)."),
        POSITIVE,
    ] = None


class SuiteOptions(NamedTuple):
    """The options that say what is run."""

    quick: Annotated[
        bool, option("About ten seconds: fewer lengths, sizes and random cases.", "--quick")
    ] = False
    feature: Annotated[list[str] | None, option("Only this feature; may be repeated.", metavar="NAME")] = (
        None
    )
    dtype: Annotated[
        list[str] | None,
        option("Only this type (float64, float32, float16, bfloat16); may be repeated.", metavar="TYPE"),
    ] = None
    claims: Annotated[
        str | None,
        option(
            "A YAML file of what it is said to do: features, without, conventions, returns, always, "
            "deterministic, "
            "layout, head_sizes, multiple_of, mask_shape.",
            metavar="FILE",
        ),
    ] = None
    xfail: Annotated[
        str | None,
        option("A YAML file of features that are known to fail, each with why.", metavar="FILE"),
    ] = None

    merge: Annotated[
        bool,
        option(
            "TARGET merges two parts of attention, (o1, L1, o2, L2) -> (o, L).",
            "--merge",
            terms=[bars(NOT_OF_MERGE, "a merge of two parts has none; leave it out")],
        ),
    ] = False
    suite: Annotated[
        str | None,
        option(
            "Cases of others instead: onnx (its node tests, with onnx installed) or torch (frozen).",
            terms=[bars(["replay"], "it runs one case; leave out --suite")],
        ),
        words("onnx", "torch"),
    ] = None
    replay: Annotated[
        str | None, option("Run the one case that is saved in FILE again.", metavar="FILE")
    ] = None
    jobs: Annotated[int | None, option("Processes that run cases side by side (1)."), whole(1, 64)] = None


class ReportOptions(NamedTuple):
    """The options that say how the answer is given."""

    save: Annotated[
        str | None,
        option(
            "The folder for failing cases, each a dump that --replay takes (attnctl-conform).",
            metavar="DIR",
            writes=True,
        ),
    ] = None
    junit: Annotated[
        str | None, option("Write the report as JUnit XML, too.", metavar="FILE", writes=True)
    ] = None
    json: Annotated[bool, option("Print the report as JSON.", "--json")] = False


SECTIONS |= {TargetOptions: TARGET, SuiteOptions: "What is run", ReportOptions: "Output"}


@command(
    app,
    "attnctl conform my_kernels.py:attention --quick",
    "attnctl conform my_kernels.py:attention --like flash --framework torch",
    "attnctl conform --quick -- ./attention {in} {out}",
)
def conform(
    *,
    target: Annotated[
        list[str] | None,
        typer.Argument(help="module:function or file.py:function; or -- CMD {in} {out}", metavar="TARGET"),
    ] = None,
    how: TargetOptions,
    arrays: Annotated[Given, ARRAYS],
    always: Annotated[Given, ALWAYS],
    what: SuiteOptions,
    report: ReportOptions,
    output: Annotated[list[str] | None, findings_option("conform")] = None,
) -> Exit:
    """Hold someone's attention function to a suite of cases: what is right, what is wrong and why.

    The function takes Q, K and V, and what else it can do is read from its signature: causal or
    is_causal, mask or attn_mask, scale, softcap, window, bias, alibi_slopes, key_lengths, past_key
    and past_value, sinks, … What it has no keyword for is skipped. Layouts, a parameter qkv, head
    sizes, lengths and masks that it takes are found out where they are not said.

    Inputs are rounded to the type first and the reference is computed in float64. Numbers may be off
    by six times what plain attention in that type is off by; the table has the worst of each feature
    as a part of that. Every call runs in a process apart with a time limit. Failing cases are made
    smaller and saved, each with the command that runs it again.

    With --backward gradients are judged as outputs are. TARGET2, or a target that takes d_output, is a
    function that takes by name what it needs of d_output, q, k, v, output, logsumexp, delta and the
    options, and returns dq, dk and dv, as a tuple or under these names; a command finds them in its
    file and writes these names. Gradients that differ from call to call are wrong only where --claims
    say deterministic: true.

    With --merge the function merges two parts of attention, as split keys and rings do: outputs, and
    log-sum-exps in float32 at least, (o1, L1, o2, L2) -> (o, L), or (o, L) with the parts on an axis of
    their own, in the axes that it takes; --returns output,logsumexp2 says that they are in base 2.

    A command reads Q, K and V, each (batch, head, n, d), from the file {in} and writes its output to
    {out}: .npz, or with {in.safetensors} and {out.safetensors} that. What else its file is to hold
    (causal, scale, …) the features of --claims say.

    Exit codes: 0 everything that was run is right; 1 something is wrong or has no effect; 2 nothing
    could be run.
    """
    from attnctl.cli.output import progress
    from attnctl.formats import write_found
    from attnctl.verbs.conform.conform import hold

    target, how = take_backward(target, how)
    if not target:
        raise AttnError("no TARGET; give module:function, file.py:function, or -- CMD {in} {out}")
    if what.suite and how.backward:
        raise AttnError(f"--backward: the cases of {what.suite} have outputs alone; leave out --suite")
    if what.merge and is_command(target):
        raise AttnError("--merge: a command cannot be called so; give module:function or file.py:function")
    files, printed = split_outputs(output)
    request = read_request(target, how, what, report, given=arrays, always=always)
    alone = how.backward in {None, LEFT_OUT["--backward"]}
    with progress("cases") as moved:
        back = None if alone else target_words([str(how.backward)])
        found = hold(target_words(target), request, back, moved)
    write_found("conform", [found], files)
    show(found, report, printed=printed)
    return Exit.of(found.agrees)


def take_backward(target: list[str] | None, how: TargetOptions) -> tuple[list[str] | None, TargetOptions]:
    """Take what follows --backward for the TARGET where there is no other."""
    if target or how.backward in {None, LEFT_OUT["--backward"]}:
        return target, how
    return [str(how.backward)], how._replace(backward=LEFT_OUT["--backward"])


def is_command(target: list[str]) -> bool:
    return len(target) > 1 or "{in" in target[0]


def target_words(target: list[str]) -> str | list[str]:
    """Return the name of a function, or the words of a command. Raises AttnError for several targets."""
    if not is_command(target):
        return target[0]
    if len(target) > 1 and not any("{in" in word for word in target):
        raise AttnError(f"{target[1]}: one TARGET at a time; a command has {{in}} and {{out}} in it")
    return target if len(target) > 1 else shlex.split(target[0])


def read_request(
    target: list[str],
    how: TargetOptions,
    what: SuiteOptions,
    report: ReportOptions,
    *,
    given: Given,
    always: Given,
) -> Request:
    """Read what is asked for. Raises AttnError for names that there are not."""
    from attnctl.inputs.config.flags import settings_from
    from attnctl.verbs.conform.conform import make_request
    from attnctl.verbs.conform.results import FOLDER

    flags = list_flags(how, what)
    called = (flags, ["--", *target]) if is_command(target) else ([*target, *flags], [])
    return make_request(
        given={"layout": USUAL} | given if is_command(target) else given,
        always=lambda claimed: settings_from(None, always, claimed),
        like=how.like,
        returns=how.returns,
        claims=what.claims,
        xfail=what.xfail,
        dtypes=what.dtype or (),
        renames=renames(how.map or [], "--map"),
        only=tuple(what.feature or ()),
        quick=what.quick,
        save=None if what.replay or what.suite or what.merge else report.save or FOLDER,
        called=(tuple(called[0]), tuple(called[1])),
        jobs=what.jobs or 1,
        backward=how.backward is not None,
        merge=what.merge,
        published=what.suite or "",
        replay=what.replay or "",
        framework=how.framework or "numpy",
        device=how.device or "",
        timeout=how.timeout,
    )


def list_flags(how: TargetOptions, what: SuiteOptions) -> list[str]:
    """List the flags that say how the target is called, for the line of a replay."""
    given = {**how._asdict(), "claims": what.claims}
    names = ("like", "returns", "framework", "device", "timeout", "claims")
    said = {f"--{name}": str(given[name]) for name in names if given[name] is not None}
    flags = [word for pair in said.items() for word in pair]
    if how.backward is not None:
        flags += ["--backward", *([] if how.backward == LEFT_OUT["--backward"] else [how.backward])]
    return flags + [each for pair in how.map or [] for each in ("--map", pair)]


def show(found: Conformance, report: ReportOptions, *, printed: bool) -> None:
    if report.junit is not None:
        from attnctl.formats import write_text
        from attnctl.verbs.conform.report import write_junit

        write_text(write_junit(found), report.junit)
    if not printed:
        return
    if report.json:
        from attnctl.formats import print_json

        print_json(found.to_dict(), indent=1)
        return
    from attnctl.drawing.screen.output import print_view
    from attnctl.verbs.conform.report import list_lines

    print_view(lambda screen: list_lines(found, screen))
