"""attnctl conform: anyone's attention function, held to a suite of cases."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

from attnctl.base.errors import AttnError, Exit
from attnctl.base.setting import Given
from attnctl.base.values import FOUR_SIZES, POSITIVE, words
from attnctl.base.workers import ENGINE, Engine
from attnctl.cli.command import LEFT_OUT
from attnctl.cli.options import BY_WORKERS, argument, bars, command, findings_option, option, renames
from attnctl.verbs.conform.declared import ALWAYS, ARRAYS, RETURNED, SIZES_OF_BLOCKS, TARGET

if TYPE_CHECKING:
    from attnctl.verbs.conform.profile import Request

target_option = partial(option, section=TARGET)
run_option = partial(option, section="What is run")
report_option = partial(option, section="Output")

ITS_OWN = LEFT_OUT["--backward"]
ALONE = (None, ITS_OWN)
"""What --backward is where no TARGET2 follows it."""

SERVED = ("http://", "https://")

NOT_BY_WORKERS = bars(("merge", "replay"), "it takes no workers; leave --on out")

NOT_OF_MERGE = (
    "like", "map", "backward", "claims", "xfail", "inputs", "replay", "save", *ARRAYS, *ALWAYS,
)  # fmt: skip


class TargetOptions(NamedTuple):
    """How the target is called, and what it gives back."""

    like: str | None = target_option(
        "It takes its options as this library's attention does.",
        words("sdpa", "flash", "vllm", "flashinfer", "onnx", "jax", "transformers"),
    )
    map: list[str] | None = target_option(
        "Say which of our names (causal, window, …) a parameter has; may be repeated.",
        metavar="THEIRS=OURS",
    )
    returns: tuple[str, ...] | None = target_option(
        "What it returns, in order, like output,logsumexp; - marks what is not judged.", RETURNED
    )
    backward: str | None = target_option(
        "Test gradients, too: those of torch or jax, of a target that takes d_output, or of TARGET2.",
        metavar="[TARGET2]",
    )
    framework: str | None = target_option(
        "The library of its arrays: numpy (the default), torch or jax.", words("numpy", "torch", "jax")
    )
    url: str | None = target_option(
        "The target is a service: each call is posted to it as .npz, and answered as .npz or JSON.",
        metavar="URL",
    )
    device: str | None = target_option("The device of its arrays, like cuda or mps.", metavar="D")
    timeout: float | None = target_option(
        "Seconds after which a call counts as hanging; default: 20.", POSITIVE
    )

    def targets(self, words: Sequence[str] | None) -> tuple[Sequence[str], str | None]:
        """The target, and another one for gradients, or None.

        What follows --backward was meant as the target where there is no other.
        """
        back = None if self.backward in ALONE else self.backward
        if self.url is not None:
            return [service_of(self.url, words or [])], back
        if words:
            return words, back
        if back is None:
            raise AttnError(
                "no TARGET; give module:function, file.py:function, --url URL, or -- CMD {in} {out}"
            )
        return [back], None


class RunOptions(NamedTuple):
    """What it is tested on."""

    quick: bool = run_option("A run of about ten seconds: fewer lengths, sizes and random cases.")
    block_sizes: tuple[int, ...] | None = run_option(
        "Sizes of its blocks: queries, keys, windows, lengths and caches end there, and one beside; "
        "default: those that are usual.",
        SIZES_OF_BLOCKS,
    )
    feature: list[str] | None = run_option(
        "Test only this feature; may be repeated; invariants are those that need no tolerance.",
        "--feature",
        "--features",
        metavar="NAME",
    )
    shape: tuple[int, ...] | None = run_option(
        "The batch, heads, length and head size at which invariants are tested.", FOUR_SIZES
    )
    dtype: list[str] | None = run_option(
        "Only this type (float64, float32, float16, bfloat16, float8_e4m3, float8_e5m2; float32:bfloat16 "
        "for arrays of float32 and bfloat16 within, as autocast has it; bfloat16/float8_e4m3 or "
        "bfloat16/int8 where K, V and a cache are stored in another); may be repeated.",
        metavar="TYPE",
    )
    inputs: str | None = run_option(
        "A dump of calls of attention: test on these, too, and on numbers drawn in their shape.",
        metavar="FILE",
        terms=[bars(["replay"], "a saved case has its numbers; leave it out")],
    )
    claims: str | None = run_option(
        "A YAML file of what it is said to do: features, without, conventions, returns, always, "
        "deterministic, layout, head_sizes, multiple_of, mask_shape.",
        metavar="FILE",
    )
    xfail: str | None = run_option(
        "A YAML file of features that are known to fail, each with the reason.", metavar="FILE"
    )
    merge: bool = run_option(
        "TARGET merges two parts of attention, (o1, L1, o2, L2) -> (o, L).",
        terms=[bars(NOT_OF_MERGE, "a merge of two parts has none; leave it out")],
    )
    replay: str | None = run_option("Run the case saved in FILE again.", metavar="FILE")
    on: Engine | None = run_option(BY_WORKERS.format("Carry out cases"), ENGINE, terms=[NOT_BY_WORKERS])


class ReportOptions(NamedTuple):
    """Where failing cases and the report go."""

    save: str | None = report_option(
        "The folder for failing cases, each a dump that --replay takes (attnctl-conform).",
        metavar="DIR",
        writes=True,
    )
    junit: str | None = report_option("Write the report as JUnit XML, too.", metavar="FILE", writes=True)
    json: bool = report_option("Print the report as JSON.")


@command(
    "attnctl conform my_kernels.py:attention --quick",
    "attnctl conform my_kernels.py:attention --like flash --framework torch",
    "attnctl conform --quick -- ./attention {in} {out}",
)
def conform(
    *,
    target: list[str] | None = argument(
        "module:function or file.py:function; or -- CMD {in} {out}", "TARGET"
    ),
    called: TargetOptions,
    arrays: Annotated[Given, ARRAYS],
    always: Annotated[Given, ALWAYS],
    run: RunOptions,
    report: ReportOptions,
    output: list[str] | None = findings_option("conform"),
) -> Exit:
    """Test an attention function on a suite of cases: what is right, what is wrong and why.

    The function takes Q, K and V; what else it can do is read from its signature: causal or is_causal,
    mask or attn_mask, scale, softcap, window, bias, alibi_slopes, key_lengths, past_key and past_value,
    sinks, positions, k_scale and v_scale, … What it has no parameter for is skipped. Its layout, a packed
    qkv parameter, and the head sizes, lengths and masks it accepts are detected unless you declare them.

    Inputs are rounded to the type first, and the reference is computed in float64. Numbers may be off by
    six times the error of plain attention in that type; the table shows the worst of each feature as a
    fraction of that. Every call runs in a separate process with a time limit. Failing cases are made
    smaller and saved, each with the command that runs it again.

    With --inputs, the calls of attention in a dump are cases as they are, and so are numbers drawn in their
    shape: the mean and scale of each channel, the first key, how peaked rows are. What is wrong names the
    call; calls that ask for what the function lacks are skipped.

    With --backward, gradients are judged like outputs. TARGET2, or a target with a parameter d_output,
    receives by name what it needs of d_output, q, k, v, output, logsumexp, delta and the options, and
    returns dq, dk and dv, as a tuple or under these names; a command finds them in its file and writes
    these names. Gradients that vary from call to call are wrong only if --claims say deterministic: true.

    With --merge, the function merges two parts of attention, as split-key kernels and ring attention do:
    outputs, and log-sum-exps in float32 or wider, (o1, L1, o2, L2) -> (o, L), or (o, L) with the parts on
    an axis of their own, in its own layout; --returns output,logsumexp2 says that they are in base 2.

    A command reads Q, K and V, each (batch, head, n, d), from the file {in} and writes its output to
    {out}: .npz, or safetensors with {in.safetensors} and {out.safetensors}. The features in --claims say
    what else its file should hold (causal, scale, …). With --url such a file is posted to a service, whose
    answer is one, or JSON with the same names; a status of 400 or more refuses the call.

    Exit codes: 0 everything that was run is right; 1 something is wrong or has no effect; 2 nothing could
    be run.
    """
    from attnctl.cli.output import give, progress
    from attnctl.formats import write_text
    from attnctl.verbs.conform.report import list_lines, write_junit
    from attnctl.verbs.conform.target import hold_target, make_target
    from attnctl.verbs.conform.workers import TargetNames, hold_by_workers

    function, gradients = called.targets(target)
    request = request_of(called, run, report, arrays, always)
    with progress("cases") as moved:
        if run.on is not None:
            found = hold_by_workers(run.on, TargetNames(function, gradients), request, moved)
        else:
            forward = make_target(function, request)
            back = None if gradients is None else make_target([gradients], request)
            found = hold_target(forward, request, back, moved)

    if report.junit is not None:
        write_text(write_junit(found), report.junit)
    give("conform", [found], output, partial(list_lines, found), json=report.json)
    return Exit.of(found.agrees)


def service_of(url: str, target: Sequence[str]) -> str:
    """The address that is the target. Raises AttnError where it is none, or another target is given."""
    if target:
        raise AttnError(f"{target[0]}: --url is the TARGET; leave one of them out")
    if not url.startswith(SERVED):
        raise AttnError(f"--url {url}: not an address; write it like http://localhost:8000/attend")
    return url


def request_of(
    called: TargetOptions, run: RunOptions, report: ReportOptions, arrays: Given, always: Given
) -> Request:
    """All that is asked of a suite, as the library takes it."""
    from attnctl.inputs.config.flags import settings_from
    from attnctl.verbs.conform.declared import make_request
    from attnctl.verbs.conform.results import FOLDER

    saves = not (run.replay or run.merge)
    return make_request(
        given=arrays if called.returns is None else {**arrays, "returns": called.returns},
        always=lambda claimed: settings_from(None, always, claimed),
        like=called.like,
        inputs=run.inputs,
        claims=run.claims,
        xfail=run.xfail,
        dtypes=run.dtype or (),
        renames=renames(called.map or [], "--map"),
        only=tuple(run.feature or ()),
        shape=run.shape or (),
        block_sizes=run.block_sizes or (),
        quick=run.quick,
        save=(report.save or FOLDER) if saves else None,
        backward=called.backward is not None,
        merge=run.merge,
        replay=run.replay or "",
        framework=called.framework or "numpy",
        device=called.device or "",
        timeout=called.timeout,
    )
