"""The Python API: the same nouns as the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass, replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal

from attnctl.base.errors import AttnError, collect_problems, raise_all
from attnctl.base.values import MOST, POSITIVE, SEED, BadValueError, short_value, whole_number
from attnctl.base.words import suggest
from attnctl.inputs.config.fields import KEYWORDS, lay_over
from attnctl.inputs.config.fields import OF_ARRAYS as ONLY_ARRAYS
from attnctl.inputs.config.settings import Settings, dotted_path
from attnctl.math import Array, Progress
from attnctl.options import ArrayOptions, Options, spelled_out
from attnctl.record import Trace as AnyTrace
from attnctl.sources.sentence import Source
from attnctl.traces import Trace, Traces

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from attnctl.base.workers import Engine
    from attnctl.math.engine.cost import Cost
    from attnctl.sources.model import Layers
    from attnctl.verbs.check.report import Report
    from attnctl.verbs.conform.report import Conformance
    from attnctl.verbs.corpus.part import CorpusPart
    from attnctl.verbs.diff import Difference
    from attnctl.verbs.effect import Effects
    from attnctl.verbs.effect.paths import PathEffects
    from attnctl.verbs.effect.prompts import MeanEffects
    from attnctl.verbs.effect.workers import EffectQuestion
    from attnctl.verbs.explain import Explanation
    from attnctl.verbs.learn import Lesson
    from attnctl.verbs.learn.grade import AnswerVerdict
    from attnctl.verbs.models.next import Lens
    from attnctl.verbs.stats import DumpStats
    from attnctl.verbs.story import Story

READERS = {name: setting.reader for name, setting in KEYWORDS.items()}
READERS["max_memory"] = whole_number(0, 2**63)
OF_ARRAYS = [name for name in READERS if name != "sentence"]
OF_SENTENCES = [name for name in OF_ARRAYS if name not in ONLY_ARRAYS]
"""The options that verbs take: `attnctl.options` has their types."""


@spelled_out(Options)
def run(
    sentence: str | None = None,
    settings: Settings | None = None,
    *,
    keep: Collection[str] | None = None,
    progress: Progress | None = None,
    **options: Unpack[Options],
) -> Trace:
    """Tokenize, attend, and record every step, or just those to `keep`.

    Options are settings (heads, d_model, seed, …) and rules by the names of their flags (causal,
    window, softcap, …), each as a config has it. Raises AttnError with every problem found.
    """
    check_kept(keep)
    sentences = [] if sentence is None else [sentence]
    check_words(*sentences)
    source = Source(settings=choose_settings(settings, options), sentences=sentences)
    return Trace.of(source.run(keep=keep, progress=progress)[0])


@spelled_out(Options)
def run_many(
    sentences: Sequence[str],
    settings: Settings | None = None,
    *,
    keep: Collection[str] | None = None,
    padded: bool = False,
    progress: Progress | None = None,
    **options: Unpack[Options],
) -> list[Trace]:
    """A trace for each sentence, with one vocabulary and the same weights; none means the settings' own.

    Each trace has the length of its sentence, or, where they are to be seen `padded`, of the
    longest.
    """
    check_kept(keep)
    check_words(*sentences)
    source = Source(settings=choose_settings(settings, options), sentences=sentences, padded=padded)
    return Traces(map(Trace.of, source.run(keep=keep, progress=progress)))


def run_model(  # noqa: PLR0913  (what a model may be run on)
    model: str | PathLike[str],
    sentence: str | None = None,
    *,
    layer: int | str | None = None,
    ids: Sequence[int] | None = None,
    pair: str | None = None,
    context: str | None = None,
    context_ids: Sequence[int] | None = None,
    hidden: Array | None = None,
    memory: Array | None = None,
    backward: bool = False,
    d_output: Array | None = None,
    edits: Sequence[str] = (),
    dtype: str = "float32",
    next: int | None = None,  # noqa: A002  (the name of the option)
    at: int | None = None,
    tokens: int | None = None,
    sample: float | None = None,
    seed: int = 0,
    chat: bool = False,
    image: str | PathLike[str] | None = None,
    keep: Collection[str] | None = None,
    progress: Progress | None = None,
) -> list[Trace]:
    """The attention of a trained model: a trace of each layer that is asked for.

    `model` is a folder that holds config.json and safetensors, a GGUF file, "ollama:NAME", or the id of one
    on the hub; "DIR --adapter LORA" is a model with a LoRA adapter;
    `layer` is 3, -1, "0,2", "all" (as None is), or of a decoder "decoder.1" and "cross.1". The sentence is
    cut by the model's own tokenizer; `ids` need none. `hidden` (token, width) is what came into the one
    layer. Edits are made in the layer that they name ("3:head_outputs[1]=0") or in the first, and flow
    into the others. `next` asks for so many next tokens instead, the likeliest after the last position,
    or `at` another: the one trace is of the steps after the last layer, its header["next"] says which they
    are. `tokens` goes on with the text for so many tokens: the likeliest each time, or drawn by a `seed` at
    the temperature `sample`; the one trace is of the same steps, its header["generated"] says which they
    are, and with a `layer` named the traces are those of the whole text. With `chat` the sentence is a
    message, written as the model's chat template has it. An `image` is the file of a picture in place of a
    sentence, for models that see: its patches are the tokens. `backward` gives the
    gradients of one layer's attention, from `d_output` (token, width) or one that is drawn back to
    `hidden`. Raises AttnError with what the model or the input is not.
    """
    from attnctl.models.generate import Generating
    from attnctl.models.run import ModelInput
    from attnctl.sources.model import Layers

    check_kept(keep)
    own, other = (None if given_ids is None else tuple(given_ids) for given_ids in (ids, context_ids))
    picture = None if image is None else fspath(image)
    raise_all(
        unfit_with_image(picture, sentence=sentence, ids=ids, hidden=hidden, next=next, tokens=tokens)
    )
    given = ModelInput(
        sentence, own, pair, context, other, hidden, memory, d_output, chat=chat, image=picture
    )
    asked = {"dtype": dtype, "edits": list(edits) or None, "backward": backward or None}
    settings = choose_settings(None, {name: value for name, value in asked.items() if value is not None})
    after = {"next": whole_number(1, MOST), "at": whole_number(-MOST, MOST)}
    after |= {"tokens": whole_number(1, MOST), "sample": POSITIVE, "seed": SEED}
    asked_next = read_options(
        {"next": next, "at": at, "tokens": tokens, "sample": sample, "seed": seed}, after
    )
    unfit = {"at": at is not None and next is None, "layer": layer is not None and next is not None}
    raise_all(f"{name}: means nothing here; leave it or next out" for name, wrong in unfit.items() if wrong)
    raise_all(unfit_with_tokens(tokens, sample, following=next is not None, backward=backward))
    generating = None if tokens is None else Generating(tokens, sample, seed)
    following = None if next is None else (asked_next["next"], asked_next.get("at"))
    layers = None if layer is None else str(layer)
    source = Layers(fspath(model), given, layers, settings, following, generating)
    return Traces(map(Trace.of, source.run(keep=keep, progress=progress)))


def unfit_with_image(image: str | None, **others: Any) -> Iterator[str]:
    """What goes beside no picture."""
    if image is None:
        return
    for name, value in others.items():
        if value is not None:
            yield f"{name}: means nothing beside image; leave one of them out"


def unfit_with_tokens(
    tokens: int | None, sample: float | None, *, following: bool, backward: bool
) -> Iterator[str]:
    """What goes without a text to be gone on with, or beside one."""
    if sample is not None and tokens is None:
        yield "sample: tokens are drawn with tokens=N; give it"
    if tokens is not None and (following or backward):
        yield f"{'next' if following else 'backward'}: means nothing beside tokens; leave one of them out"


def lens(
    model: str | PathLike[str] | Layers,
    sentence: str | None = None,
    *,
    ids: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> Lens:
    """The likeliest next token at each position after each layer of a trained model: the logit lens.

    Raises AttnError where the model has no head that gives logits, as `run_model` does.
    """
    from attnctl.models.next import begin_pass
    from attnctl.models.run import ModelInput
    from attnctl.sources.model import Layers
    from attnctl.verbs.models.next import lens_of

    if not isinstance(model, Layers):
        given = ModelInput(sentence, None if ids is None else tuple(ids))
        model = Layers(fspath(model), given, None, Settings(dtype="float32"))
    prompt = begin_pass(model.model, model.input, model.settings)
    return lens_of(prompt, prompt.states(progress))


def effect(  # noqa: PLR0913  (what is asked, of what, and where it is kept)
    prompt: str | None = None,
    *,
    model: str | PathLike[str],
    between: Sequence[str | int] | None = None,
    ids: Sequence[int] | None = None,
    patch: str | Sequence[int] | None = None,
    mean: bool = False,
    by: str = "head",
    at: int | None = None,
    metric: str = "difference",
    direct: bool = False,
    attribution: bool = False,
    save: str | PathLike[str] | None = None,
    on: Engine | str | None = None,
    progress: Progress | None = None,
) -> Effects:
    """What each head of each layer does to logit A − logit B of the next token: `between` is (A, B).

    Each head's output is made zero, or its `mean` over positions, or is that of another prompt (`patch`, a
    text or ids). `by` "layer" or "network" it is all that a layer or its network adds, "position" the row
    of a position that comes into a layer. The next token is that after the last position, or `at` another.
    The `metric` may be a "logit" (of A), "logprob", "probability" or the "divergence" of all, too, of which
    the likeliest tokens are asked where `between` is left out.
    With `attribution` a gradient estimates all of them at once: gradient · (other − own).
    With `direct` there is also what each part adds to the difference itself, its norms held.
    `save` is a JSON file that is written after each layer; one of the same prompt that an interrupted run
    left is gone on from. `on` has workers that measure a layer each: "processes=4", "dask", "ray=ADDRESS".
    Raises AttnError where the model has no head that gives logits, and for misfits.
    """
    from attnctl.base.workers import ENGINE, Engine
    from attnctl.formats import write_found
    from attnctl.verbs import effect as effects
    from attnctl.verbs.effect.attribution import estimate_effects
    from attnctl.verbs.effect.workers import fill_by_workers

    question = begin_question(prompt, ids, fspath(model), patch)
    engine = on if on is None or isinstance(on, Engine) else read_options({"on": on}, {"on": ENGINE})["on"]
    found = question.begin(between, mean=mean, by=by, at=at, metric=metric)
    own = question.own
    other = question.other
    if direct:
        pair = (found.between[0].id, found.between[1].id)
        found = replace(found, direct=effects.direct_shares(own, pair, found.prompt["at"]))
    if attribution:
        found = replace(found, estimated=True)
    found = effects.resume(found, fspath(save)) if save is not None else found

    if attribution:
        filled = estimate_effects(own, found, other, progress)
    elif engine is None:
        filled = effects.fill_effects(own, found, other, progress)
    else:
        filled = fill_by_workers(engine, question.asked, found, question.patched, progress)
    for found in filled:
        if save is not None:
            write_found("effect", [found], [fspath(save)])
    return found


def path_effect(  # noqa: PLR0913  (what is asked, of what)
    paths: str | Sequence[str],
    prompt: str | None = None,
    *,
    model: str | PathLike[str],
    between: Sequence[str | int] | None = None,
    ids: Sequence[int] | None = None,
    patch: str | Sequence[int] | None = None,
    mean: bool = False,
    at: int | None = None,
    metric: str = "difference",
    progress: Progress | None = None,
) -> PathEffects:
    """What one part does to the next token through another alone: "4.2->7.3", as `effect` measures it.

    A part is a head ("4.2"), a network ("5.mlp"), "embed" or "logits", "*" each head; a head reads by
    "7.3.q", ".k" or ".v", or by all three. What the first part writes is changed where the second reads it,
    all between them stays as it was, and what the second makes of it goes on. Raises AttnError for parts
    that there are not, and for models whose layers do not add to one stream.
    """
    from attnctl.verbs.effect.paths import path_effects, read_paths

    question = begin_question(prompt, ids, fspath(model), patch)
    begun = question.begin(between, mean=mean, by="head", at=at, metric=metric)
    texts = [paths] if isinstance(paths, str) else list(paths)
    layers, heads = begun.effect.shape
    return path_effects(question.own, begun, question.other, read_paths(texts, layers, heads), progress)


def begin_question(
    prompt: str | None,
    ids: Sequence[int] | None,
    model: str,
    patch: str | Sequence[int] | None,
) -> EffectQuestion:
    """A prompt, and another that parts are taken from, each on its way through the model."""
    from attnctl.verbs.effect.workers import EffectQuestion, Prompt

    def prompt_of(given: str | Sequence[int] | None) -> Prompt:
        text = given if isinstance(given, str) else None
        own = None if text is not None or given is None else tuple(int(number) for number in given)
        return Prompt(model, text, own)

    asked = prompt_of(ids if ids is not None else prompt)
    patched = None if patch is None else prompt_of(patch)
    return EffectQuestion(
        asked=asked, own=asked.begin(), patched=patched, other=patched and patched.begin()
    )


def mean_effect(  # noqa: PLR0913  (what is asked, of what)
    prompts: str | PathLike[str] | Sequence[Mapping[str, Any]],
    *,
    model: str | PathLike[str],
    between: Sequence[str | int] | None = None,
    mean: bool = False,
    by: str = "head",
    at: int | None = None,
    metric: str = "difference",
    attribution: bool = False,
    on: Engine | str | None = None,
    progress: Progress | None = None,
) -> MeanEffects:
    """The effects of `effect` on many prompts: their mean, and how they spread.

    `prompts` is a file of JSON objects, one a line, or such objects: `prompt` and, to patch from, `other`
    are texts or lists of ids, `a` and `b` the two tokens, which `between` gives for those that have none.
    Raises AttnError with every line that is none of that, and by position where lengths differ.
    """
    from attnctl.verbs.effect.prompts import mean_effects, prompt_of_entry, read_prompts, refuse_mixed

    if isinstance(prompts, str | PathLike):
        asked = read_prompts(fspath(prompts))
    else:
        asked = refuse_mixed("prompts", [prompt_of_entry(entry) for entry in prompts])

    found = []
    for number, each in enumerate(asked):
        if progress:
            progress(number, len(asked))
        found.append(
            effect(
                each.prompt if isinstance(each.prompt, str) else None,
                ids=None if isinstance(each.prompt, str) else each.prompt,
                patch=each.other,
                between=each.between or between,
                model=model,
                mean=mean,
                by=by,
                at=at,
                metric=metric,
                attribution=attribution,
                on=on,
            )
        )
    return mean_effects(found)


@spelled_out(ArrayOptions)
def attend(
    arrays: Mapping[str, Array],
    settings: Settings | None = None,
    *,
    keep: Collection[str] | None = None,
    progress: Progress | None = None,
    layer: int | None = None,
    engine: Literal["torch"] | None = None,
    **options: Unpack[ArrayOptions],
) -> Trace:
    """The operator itself on arrays: Q K V, or X and weights, as `plan_arrays` reads them.

    Arrays under names of torch or of Hugging Face are read as ours, one `layer` of them.
    Only the steps to `keep` are held; where none of them is n × n, memory stays bounded. With the
    `engine` "torch" head outputs come of torch's own kernel. Raises AttnError with every array that is
    missing, not finite or does not fit.
    """
    from attnctl.sources.dump import OfArrays

    check_kept(keep)
    if engine not in {None, "torch"}:
        raise AttnError(f'engine: {short_value(engine)}, expected "torch" or None')
    asked = choose_settings(settings, options, OF_ARRAYS)
    source = OfArrays(arrays, asked, layer, by_torch=engine is not None)
    return Trace.of(source.run(keep=keep, progress=progress)[0])


@spelled_out(ArrayOptions)
def cost(
    inputs: str | Mapping[str, Array] | None = None,
    settings: Settings | None = None,
    *,
    keep: Collection[str] | None = None,
    **options: Unpack[ArrayOptions],
) -> list[Cost]:
    """The shape, bytes and operations of each step, of a sentence or of arrays; nothing is computed.

    Raises AttnError as `run` and `attend` do.
    """
    check_kept(keep)
    asked = choose_settings(settings, options, OF_ARRAYS)
    if inputs is None or isinstance(inputs, str):
        source = Source(settings=asked, sentences=[] if inputs is None else [inputs])
    else:
        from attnctl.sources.dump import OfArrays

        source = OfArrays(inputs, asked)
    return source.costs(keep)[0]


def load(path: str | PathLike[str]) -> Trace:
    """A dump, or anyone's arrays, as a trace. Raises AttnError for what is neither."""
    from attnctl.store.source import read_one

    return Trace.of(read_one(fspath(path)))


@spelled_out(Options)
def explain(
    trace: AnyTrace, cell: str, settings: Settings | None = None, **options: Unpack[Options]
) -> Explanation:
    """The arithmetic behind one cell of a trace, named like 'attention_weights[0,love,AI]'.

    For anyone else's arrays `settings` and options say what kind of attention they are meant to
    be. Raises AttnError where there is no such cell, or where what it came from is not there.
    """
    from attnctl.verbs.explain import explain as explain_cell

    return explain_cell(trace, cell, choose_settings(settings, options) if options else settings)


def stats(trace: AnyTrace) -> DumpStats:
    """Measure each head's weights: entropy, distance, the share of the previous token, …

    Raises AttnError where the trace has no attention weights, or impossible ones.
    """
    from attnctl.verbs.stats.tally import measure_heads

    return measure_heads(trace)


@spelled_out(Options)
def corpus(  # noqa: PLR0913  (what is measured, which part of it, and where it is kept)
    sentences: str | PathLike[str] | Iterable[str],
    settings: Settings | None = None,
    *,
    model: str | PathLike[str] | None = None,
    shard: str | None = None,
    pairs: bool = False,
    skip_bad: bool = False,
    save: str | PathLike[str] | None = None,
    on: str | None = None,
    survey: str | PathLike[str] | None = None,
    progress: Progress | None = None,
    **options: Unpack[Options],
) -> CorpusPart:
    """Measure each head over a corpus: a file of sentences, one a line, or the sentences themselves.

    They go through a trained `model`, or attention as settings and options have it. `shard` "3/8" is
    the third part of eight, which `merge_corpus` puts together. Bad lines are left out and counted
    where `skip_bad` says so. With `save` the part is kept in a file while it grows; one that a killed
    process left there is gone on from. Workers measure it `on` "processes=4", "dask" or "ray=ADDRESS".
    `survey` is a file that says where blocks of lines stand, made where it is missing: with it a shard
    reads its own bytes alone. Raises AttnError with every bad line, and for a file that holds a part of
    something else.
    """
    from attnctl.base.workers import ENGINE
    from attnctl.verbs.corpus import SHARD, WHOLE
    from attnctl.verbs.corpus.run import measure_into, open_work

    asked_for = settings is not None or any(option is not None for option in options.values())
    if model is not None and asked_for:
        raise AttnError("model: it has its own attention; leave out settings and options")
    given = read_options({"shard": shard, "on": on}, {"shard": SHARD, "on": ENGINE})
    if on is not None and shard is not None:
        raise AttnError("shard: an engine cuts the corpus itself; leave it out beside on")
    source = fspath(sentences) if isinstance(sentences, (str, PathLike)) else tuple(sentences)
    if not isinstance(source, str):
        check_words(*source)
    asked, folder = choose_settings(settings, options), None if model is None else fspath(model)
    how = {"pairs": pairs, "skip_bad": skip_bad, "in_blocks": on is not None}
    kept = None if survey is None else fspath(survey)
    work = open_work(source, folder, asked, given.get("shard", WHOLE), survey=kept, **how)
    return measure_into(work, [] if save is None else [fspath(save)], progress, given.get("on"))


def merge_corpus(parts: Iterable[CorpusPart | str | PathLike[str]]) -> CorpusPart:
    """The statistics of a whole corpus from its parts, their files or addresses, in any order.

    Raises AttnError where lines are in two of them or in none, and where they are of different things.
    """
    from attnctl.store.elsewhere import expand_address
    from attnctl.verbs.corpus.part import CorpusPart as Part
    from attnctl.verbs.corpus.part import merge_parts, read_part

    named, problems = [], list[str]()
    for number, part in enumerate(parts, 1):
        if isinstance(part, Part):
            named.append((f"part {number}", part))
            continue
        with collect_problems(problems):
            named += [(path, read_part(path)) for path in expand_address(fspath(part))]
    raise_all(problems)
    if not named:
        raise AttnError("parts: none; give what attnctl.corpus made of each shard")
    return merge_parts(named)


def story(trace: AnyTrace, *, steps: Sequence[str] | None = None) -> Story:
    """The trace, or some of its steps, told one step at a time: `print(story(trace))`.

    Each of its `chapters` says what happens at a step, and has `claims` about its numbers, as
    values. Raises MissingStep for a step that is not there.
    """
    from attnctl.verbs.story import story as tell

    return tell(trace, steps)


def lessons(folder: str | PathLike[str] | None = None) -> list[Lesson]:
    """The lessons that come with attnctl, or those of a folder, in order.

    Raises AttnError with every problem of every file.
    """
    from attnctl.verbs.learn import lessons as read

    return read(None if folder is None else fspath(folder))


def grade(lesson: Lesson, answer: Any) -> AnswerVerdict:
    """Grade an answer to a lesson: `right` (None: cannot be told), and the `mistake` it shows.

    Numbers are texts, as they were typed: their digits count. A matrix is a text or nested lists.
    """
    from attnctl.verbs.learn.grade import grade as grade_answer

    return grade_answer(lesson, answer)


def diff(  # noqa: PLR0913  (what counts as a difference, and what is compared)
    a: AnyTrace,
    b: AnyTrace,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    steps: Sequence[str] | None = None,
    by_position: bool = False,
    why: bool = True,
) -> Difference:
    """Compare two traces step by step: where they part, by how much, and, if asked, why.

    Numbers differ when |a − b| > atol + rtol·|b|; what is None follows from the coarser type of
    the two, as in `torch.testing.assert_close`. `steps` names the ones to compare. Sentences that
    differ are laid side by side by the tokens they share, unless `by_position`. Raises AttnError
    where there is nothing to compare.
    """
    from attnctl.evidence.allowed import Tolerance
    from attnctl.verbs.diff import diff as compare

    tolerance = Tolerance(rtol, atol, equal_nan)
    return compare(a, b, tolerance, steps=steps, by_position=by_position, why=why)


@contextmanager
def capture(
    path: str | PathLike[str] | None = None,
    *,
    module: str | None = None,
    calls: Collection[int] | None = None,
    functions: Collection[str] = (),
    heads: Sequence[int] | None = None,
    queries: tuple[int | None, int | None] | None = None,
    backward: bool = False,
) -> Iterator[Sequence[Trace]]:
    """Record each call of attention in the block as a trace: `with attnctl.capture() as calls: …`.

    `module` is a pattern of torch modules, like "layers.2.*", `calls` are numbers of calls, `functions`
    names of your own, "module:name"; of each call only these heads and queries are kept, and with
    `backward` its gradients, too. With a `path` the file of the calls (.npz) stays.
    """
    from attnctl.verbs.capture import recording

    chosen = {"module": module, "calls": calls, "functions": functions, "heads": heads, "queries": queries}
    with recording(Trace.of, None if path is None else fspath(path), **chosen, backward=backward) as found:
        yield found


@spelled_out(ArrayOptions)
def check(
    trace: AnyTrace | Mapping[str, Array] | None = None,
    settings: Settings | None = None,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    decimals: int | None = None,
    layer: int | str | None = None,
    model: str | PathLike[str] | Layers | None = None,
    **options: Unpack[ArrayOptions],
) -> Report:
    """Recompute every step of a trace; name the first wrong one and the mistake that explains it.

    What was intended is what a trace of ours says itself; for anyone else's arrays, and to overrule
    it, `settings` and options (heads, causal, …) say it. Those arrays have our names (Q, K, V,
    scores, …) or those of torch, of Hugging Face and of common variables, one `layer` of them; they
    may be torch's or JAX's, or anything with `__array__` or `__dlpack__`. Numbers may be as far
    off as rounding puts them, or as `rtol` and `atol` or a number of `decimals` say. Or a trained
    `model` says what was meant, whose `layer` someone ported. Without a trace it is the caller's own
    variables that are checked, as in a notebook. Raises AttnError where there is nothing to compare.
    """
    from attnctl.inputs.plan.intended import settings_of, trace_of_arrays, under_our_names
    from attnctl.verbs.check.check import check as check_steps
    from attnctl.verbs.check.exercise import strictness_of

    if trace is None:
        caller = sys._getframe(1)  # noqa: SLF001  (as a cell of a notebook calls it)
        variables = {**caller.f_globals, **caller.f_locals}
        return check_variables(variables, settings, options, rtol=rtol, atol=atol, decimals=decimals)
    trace = trace if isinstance(trace, AnyTrace) else trace_of_arrays(trace)
    strictness = strictness_of(trace, rtol, atol, decimals)
    if model is not None:
        from attnctl.models.run import ModelInput
        from attnctl.sources.model import Layers

        if not isinstance(model, Layers):
            if options or settings:
                raise AttnError("model: it says what was meant; leave out settings and options")
            model = Layers(fspath(model), ModelInput(), None if layer is None else str(layer), Settings())
        ours, plan = model.plan_of(trace)
        return check_steps(ours, plan, strictness)
    if options:
        settings = choose_settings(settings or settings_of(trace), options, OF_ARRAYS)
    ours = under_our_names(trace, settings, None if layer is None else int(layer))
    return check_steps(ours, settings, strictness)


def check_variables(
    variables: Mapping[str, Any], settings: Settings | None, options: Mapping[str, Any], **strictness: Any
) -> Report:
    """Check the attentions among the variables of a program: the first wrong one, or else the last."""
    from attnctl.sources.program.variables import program_of_variables
    from attnctl.verbs.check.program import ProgramJudge, over_shown

    def make_settings(shown: Mapping[str, Any]) -> Settings:
        return choose_settings(settings or Settings(), over_shown(shown, options), OF_ARRAYS)

    def check_arrays(arrays: Mapping[str, Any], meant: Settings) -> Report:
        return check(arrays, meant, **strictness)

    program = program_of_variables(variables, options)
    judge = ProgramJudge(program, check_arrays, make_settings)
    reports = [judge.judge(steps).report for steps in program.steps]
    wrong = [report for report in reports if report.agrees is False]
    if (
        not reports
    ):  # their numbers have nothing to do with each other: what their names say is all there is
        return check(program.variables, settings, **strictness, **options)
    return (wrong or reports[-1:])[0]


def conform(  # noqa: PLR0913  (how a function may be called, and what is run)
    target: str | Callable[..., Any],
    *,
    layout: str | None = None,
    head_sizes: Sequence[int] | None = None,
    multiple_of: int | None = None,
    mask_shape: str | None = None,
    always: Mapping[str, Any] | None = None,
    like: str | None = None,
    names: Mapping[str, str] | None = None,
    framework: str = "numpy",
    device: str | None = None,
    returns: Sequence[str] | None = None,
    claims: str | PathLike[str] | None = None,
    xfail: str | PathLike[str] | None = None,
    features: Sequence[str] = (),
    dtypes: Sequence[str] = (),
    quick: bool = False,
    block_sizes: Sequence[int] = (),
    timeout: float | None = None,
    save: str | PathLike[str] | None = None,
    progress: Progress | None = None,
    backward: bool | str | Callable[..., Any] = False,
    inputs: str | PathLike[str] | Sequence[Trace] | None = None,
    merge: bool = False,
    on: Engine | str | None = None,
) -> Conformance:
    """Hold an attention function to a suite of cases: what is right, what is wrong and why.

    A function is called in this process; the name of one, "module:function" or "file.py:function", in a
    process of its own with a time limit for each call. It takes Q, K and V, in axes that `layout` says
    or that are found out; `head_sizes`, `multiple_of` and `mask_shape` say what else it takes, `always`
    the options of `attend` that are on whatever it is called with. What else it can do is read from its
    signature, `names` says theirs -> ours, `returns` what comes back, the output first. `claims` and
    `xfail` are YAML files, `block_sizes` those of its blocks. Failing cases are saved in the folder
    `save`, where one is given. With `backward` gradients are judged, too: those of torch or jax, of a
    target that takes d_output by name and returns (dq, dk, dv), or of another such function that
    `backward` names. `inputs`, a dump or traces, are calls of attention that are cases, too, and the
    shape of numbers that others are drawn in. With `merge` it is held to the merge of two parts, (o1,
    L1, o2, L2) -> (o, L), in base 2 where it `returns` logsumexp2. Workers carry out the cases of a target
    that has a name `on` "processes=4", "dask" or "ray=ADDRESS". Raises AttnError where the function
    cannot be called, and for names that there are not.
    """
    from attnctl.base.workers import ENGINE, Engine
    from attnctl.verbs.conform.declared import ALWAYS_FORM, ARRAYS, CLAIMS, make_request, read_sizes
    from attnctl.verbs.conform.target import hold_target, make_target
    from attnctl.verbs.conform.workers import TargetNames, hold_by_workers

    said: dict[str, Any] = {"layout": layout, "mask_shape": mask_shape}
    said |= {"head_sizes": head_sizes, "multiple_of": multiple_of}
    if merge:
        more = said | {"always": always, "like": like, "names": names, "claims": claims, "xfail": xfail}
        more |= {"save": save, "backward": backward, "inputs": inputs, "on": on}
        raise_all(f"{name}: a merge of two parts has none" for name, value in more.items() if value)
    always_on = read_options(always or {}, {name: key.reader for name, key in ALWAYS_FORM.keys.items()})
    readers = {name: CLAIMS.keys[name].reader for name in (*ARRAYS, "returns")}
    request = make_request(
        given=read_options({**said, "returns": returns}, readers),
        always=lambda claimed: lay_over(claimed, always_on),
        like=like,
        claims=None if claims is None else fspath(claims),
        xfail=None if xfail is None else fspath(xfail),
        inputs=fspath(inputs) if isinstance(inputs, PathLike) else inputs,
        dtypes=dtypes,
        renames=names or {},
        only=tuple(features),
        quick=quick,
        block_sizes=read_sizes(list(block_sizes)) if block_sizes else (),
        save=None if save is None else fspath(save),
        backward=bool(backward),
        merge=merge,
        framework=framework,
        device=device or "",
        timeout=timeout,
    )
    if on is not None:
        back_name = None if isinstance(backward, bool) else backward
        if not isinstance(target, str) or not isinstance(back_name, str | None):
            raise AttnError(
                "on: workers call a target by its name; give module:function or file.py:function"
            )
        engine = on if isinstance(on, Engine) else read_options({"on": on}, {"on": ENGINE})["on"]
        return hold_by_workers(engine, TargetNames([target], back_name), request, progress)
    back = None if isinstance(backward, bool) else make_target(backward, request)
    return hold_target(make_target(target, request), request, back, progress)


def check_words(*sentences: object) -> None:
    """Raise AttnError for each sentence that is no text."""
    raise_all(
        f"sentence: {short_value(sentence)} is not text; give words, like 'I love AI'"
        for sentence in sentences
        if not isinstance(sentence, str)
    )


def check_kept(keep: Collection[str] | None) -> None:
    """Raise AttnError where the steps to keep are no list of names, or none."""
    if isinstance(keep, str):
        raise AttnError(f"keep: a text; write a list of steps, like [{keep!r}]")
    if keep is not None and not keep:
        raise AttnError('keep: no step; name at least one, like ["output"], or leave it out for all')


def choose_settings(
    settings: Settings | None, options: Mapping[str, Any], known: Collection[str] = OF_SENTENCES
) -> Settings:
    """Settings with options laid over them; what is None stays as it is.

    Raises AttnError with every option that there is not, or that has no meaning.
    """
    base = settings or Settings()
    every = {"dtype": base.dtype, **options}  # NumPy knows types that have no steps
    given = read_options(every, {name: READERS[name] for name in known})
    return replace(lay_over(base, given), named=base.named.union(given))


def read_options(options: Mapping[str, Any], readers: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    """The values of keywords that are given. Raises AttnError with every problem."""
    given: dict[str, Any] = {}
    problems: list[str] = []
    for name, value in options.items():
        if name not in readers:
            problems.append(f"{name}: no such option; {suggest(name, list(readers))}")
        elif value is not None:
            try:
                given[name] = read_option(name, value, readers[name])
            except BadValueError as wrong:
                problems += (f"{dotted_path((name, *path))}: {text}" for path, text in wrong.problems)
    raise_all(problems)
    return given


def read_option(name: str, value: Any, read: Callable[[Any], Any]) -> Any:
    """A keyword's value: as in a config, or an object that `Settings` holds, which stays as it is."""
    if any(map(is_dataclass, value if isinstance(value, (list, tuple)) else [value])):
        return value
    if name == "dtype":  # np.float32 and np.dtype("float32") have names
        value = getattr(value, "__name__", getattr(value, "name", value))
    data = as_data(value)
    if name == "positions" and isinstance(data, list):
        data = {"learned": data}
    return read(data)


def as_data(value: Any) -> Any:
    """The value as JSON would give it: tuples are lists, and so are arrays."""
    match value:
        case tuple() | list():
            return list(map(as_data, value))
        case Mapping():
            return {name: as_data(item) for name, item in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value
