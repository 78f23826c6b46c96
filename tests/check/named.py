"""Holds what `check` says of a named mistake to the numbers: it is made again here, as it is said to be.

Each way to make a mistake is a program of the tests' own; a number that is said is read off the words. A
mistake that nobody makes here is one that nobody holds, and fails.
"""

from __future__ import annotations

import re
from functools import partial
from itertools import permutations, product

import numpy as np
import planted as own
from spoken import ALIKE, NUMBER, number

EXPLAINED = 0.3
"""What a mistake may leave of the differences, root mean square."""


def false_of_mistakes(world, findings):
    """What is said of mistakes at one step, and of what fits as well, that no program here bears out.

    Several at one step are made together.
    """
    if len(findings) > 1:
        told = [(finding.mistake, finding.words) for finding in findings]
        return [] if are_borne_out(world, told) else [f"{name}: {words}" for name, words in told]

    (finding,) = findings
    told = [(finding.mistake, finding.words)]
    told += [(name, words) for name, (words, _) in zip(finding.also, finding.otherwise, strict=False)]
    return [f"{name}: {words}" for name, words in told if not is_borne_out(world, name, words)]


def is_borne_out(world, name, words):
    if name in BOUNDED:
        return BOUNDED[name](world, words)
    return any(is_almost(world, made_so(world, way)) for way in ways_of(world, name, words))


def are_borne_out(world, told):
    """Whether some way to make the first, and then the others, gives the numbers."""
    for ways in product(*(ways_of(world, name, words) for name, words in told)):
        for order in permutations(ways):
            if is_almost(world, made_so(world, together(world, order))):
                return True
    return False


def ways_of(world, name, words):
    """The programs that make a mistake: another kind, edits of steps, or one of the tests' own."""
    ways = NAMED[name](world, words) if name in NAMED else []
    return [*ways, *({"mistake": way} for way in own.PLANTED if way.split("/")[0] == name)]


def together(world, ways):
    """One program of several: its edits one after the other, whatever else each of them changes."""
    out, edits = {}, {}
    for way in ways:
        out |= {name: value for name, value in way.items() if name != "edits"}
        for step, edit in way.get("edits", {}).items():
            edits[step] = then(edits[step], edit) if step in edits else edit
    return out | {"edits": edits}


def then(first, second):
    return lambda x, before: second(first(x, before), before)


def made_so(world, way):
    """The step by a program that makes a mistake; None where its shapes go together in no way."""
    try:
        return world.remake(**way)
    except (ValueError, KeyError, StopIteration):
        return None


def is_almost(world, made):
    """Whether a program gives the numbers, and explains most of what is wrong with them."""
    found, right = world.found, world.right
    if made is None or made.shape != found.shape:
        return False
    told = np.isfinite(made) & np.isfinite(found)
    if not (told | (np.isnan(made) & np.isnan(found)) | (made == found) | hidden(world, made)).all():
        return False
    left = np.square((made - found)[told]).sum()
    off = np.square((right - found)[told & np.isfinite(right)]).sum()
    size = np.square(made[told]).sum()
    few_left = left <= max(EXPLAINED**2 * off, told.sum() * world.room**2)
    return bool(left <= ALIKE**2 * size and few_left)


def hidden(world, made):
    """Scores that softmax makes 0 of, whatever stands there."""
    if world.step != "masked_scores":
        return np.zeros(made.shape, bool)
    return (made < -1e3) & (world.found < -1e3)


def remade(step, change):
    """A way: the step with its numbers changed by a function of them and of the words."""

    def ways(world, words):
        return [{"edits": {step: lambda x, before: change(x, before, words)}}]

    return ways


def numbers_said(words):
    return [number(each) for each in re.findall(NUMBER, words)]


def normalized(weights):
    total = weights.sum(axis=-1, keepdims=True)
    return weights / np.where(total == 0, 1, total)


# --- scores ---


def scaled_by(world, words):
    """The scores are divided by 2.449 (√6), multiplied by 0.3; or what softmax takes is."""
    factor = numbers_said(words)[0]
    if "divided" in words:
        factor = 1 / factor
    if "softmax is taken" in words:
        name = next(each for each in reversed(list(world.should)) if each.endswith("scores"))
        return [{"edits": {name: lambda x, _: factor * x}}]
    return [{"kind": world.kind.but(scale=factor)}]


def scaled_usually(world, words):
    (d_k,) = numbers_said(words)
    return [{"kind": world.kind.but(scale=1 / np.sqrt(d_k))}]


def scaled_twice(world, words):
    del words
    kind = world.kind
    factor = 1 / np.sqrt(kind.d) if kind.scale is None else kind.scale
    steps = ("Q", "scores", "scaled_scores", "attention_weights")
    ways = [{"edits": {step: lambda x, _: factor * x}} for step in steps[:3]]
    return [*ways, {"kind": kind.but(scale=factor**2)}]


def already_scaled(world, words):
    del words
    kind = world.kind
    factor = 1 / np.sqrt(kind.d) if kind.scale is None else kind.scale
    return [{"edits": {world.step: lambda x, _: factor * x}}]


def multiplied(world, words):
    said = re.match(rf"(\w+) is multiplied by ({NUMBER})", words)
    factor = number(said[2])
    return [{"edits": {said[1]: lambda x, _: factor * x}}]


def capped_otherwise(world, words):
    return [{"kind": world.kind.but(softcap=numbers_said(words)[0])}]


def clipped(world, words):
    del words
    cap = world.kind.softcap

    def clip(x, before):
        del x
        return np.clip(before["scaled_scores"], -cap, cap)

    return [{"edits": {"softcapped_scores": clip}}]


# --- softmax ---


def with_logarithms(x, before, words):
    del before, words
    return np.log(x)


def alike(x, before, words):
    del before, words
    return normalized((x > 0).astype(float))


def twice_softmax(x, before, words):
    del before, words
    return own.softmax(np.where(x > 0, x, -np.inf))


def exponentials(x, before, *, less_top):
    """Of the last scores, with the row maximum subtracted or not."""
    scores = before[next(each for each in reversed(list(before)) if each.endswith("scores"))]
    top = scores.max(axis=-1, keepdims=True) if less_top else np.zeros(1, scores.dtype)
    return np.exp(scores - np.where(np.isinf(top), 0, top).astype(x.dtype))


def of_exponentials(change):
    """Ways: weights as a function of exp's, which overflow or do not."""

    def weights(x, before, *, less_top):
        return change(exponentials(x, before, less_top=less_top))

    def ways(world, words):
        del world, words
        return [{"edits": {"attention_weights": partial(weights, less_top=top)}} for top in (True, False)]

    return ways


def by_sums_of_rows(e):
    return e / e.sum(axis=-1, keepdims=True).swapaxes(-1, -2)


def dropped(world, words):
    """Some weights are 0 and the others as they were, which ones the numbers show."""
    del words
    zero = world.found == 0
    return [{"edits": {"attention_weights": lambda x, _: np.where(zero, 0, x)}}]


def highest_kept(world, words):
    """Only so many keys of the highest scores get weight."""
    count = int(numbers_said(words)[0])

    def keep(x, before):
        del before
        least = np.sort(x, axis=-1)[..., -count, None]
        return normalized(np.where(x >= least, x, 0))

    del world
    return [{"edits": {"attention_weights": keep}}]


def over_queries(world, words):
    del words

    def columns(x, before):
        del x
        scores = before[next(each for each in reversed(list(before)) if each.endswith("scores"))]
        return own.softmax(scores, -2)

    return [{"edits": {"attention_weights": columns}}]


def hardest(x, before, words):
    del before, words
    return (x == x.max(axis=-1, keepdims=True)) * (x > 0)


def averaged(world, words):
    """Each block of keys has a softmax of its own, and the blocks are averaged."""
    if "averaged" not in words:
        return []
    block = int(re.search(r"\(of (\d+)\)", words)[1])

    def by_block(x, before):
        scores = before[next(each for each in reversed(list(before)) if each.endswith("scores"))]
        starts = range(0, x.shape[-1], block)
        return np.concatenate([own.softmax(scores[..., at : at + block]) for at in starts], -1) / len(
            starts
        )

    return [{"edits": {"attention_weights": by_block}}]


def with_more_keys(world, words):
    """Softmax counts 2 keys of zeros; a key more whose score is 0.3; 0.1 is added to the sum."""
    said = numbers_said(words)[0]
    scores = next(each for each in reversed(list(world.should)) if each.endswith("scores"))

    def grown(x, before):
        s = before[scores]
        top = s.max(axis=-1, keepdims=True)
        top = np.where(np.isinf(top), 0, top)
        e = np.exp(s - top)
        more = {
            "keys of zeros": said * np.exp(-top),
            "key of zeros": said * np.exp(-top),
            "a key more": np.exp(said - top),
            "is added": said,
        }
        (extra,) = [each for text, each in more.items() if text in words]
        return e / (e.sum(axis=-1, keepdims=True) + extra)

    return [{"edits": {"attention_weights": grown}}]


def dropout_is_on(world, words):
    """Some weights are 0, and the others as many times too large."""
    p = float(re.search(r"p = ([\d.]+)\)", words)[1])
    kept = (world.found != 0) & (world.right != 0)
    return bool(np.allclose(world.found[kept], world.right[kept] / (1 - p), rtol=5e-3)) and bool(
        (world.found[~kept & (world.right == 0)] == 0).all()
    )


def dropout_is_bare(world, words):
    part = float(re.match(r"(\d+)%", words)[1])
    kept = (world.found != 0) & (world.right != 0)
    dropped = (world.found == 0) & (world.right != 0)
    same = np.allclose(world.found[kept], world.right[kept], rtol=5e-3)
    return bool(same) and abs(dropped.sum() / (world.right != 0).sum() - part / 100) < 0.01


# --- who sees whom ---


def hides_more(world, seen):
    """Keys hidden that should be seen, beside what should be hidden."""
    n, keys = world.kind.n, world.kind.keys or world.kind.n
    marks = seen(np.arange(n)[:, None], np.arange(keys)[None, :])
    ways = [{"attention_weights": lambda x, _: normalized(np.where(marks, x, 0))}]
    if "masked_scores" in world.should:
        ways.append({"masked_scores": lambda x, _: np.where(marks, x, -np.inf)})
    return [{"edits": way} for way in ways]


def keys_are_dropped(world, words):
    said = re.match(r"the (first|last) (?:(\d+) )?keys? (?:is|are) left out", words)
    count, keys = int(said[2] or 1), world.kind.keys or world.kind.n
    if said[1] == "first":
        return hides_more(world, lambda query, key: (key >= count) & (query >= 0))
    return hides_more(world, lambda query, key: (key < keys - count) & (query >= 0))


def not_itself(world, words):
    del words
    return hides_more(world, lambda query, key: query + world.kind.offset != key)


def members_mixed_up(world, words):
    """Each member by the length of some member, or all by one."""
    del words
    ways = np.array(np.meshgrid(*[world.kind.lengths] * len(world.kind.lengths))).reshape(
        len(world.kind.lengths), -1
    )
    return [with_lengths(world, way) for way in ways.T]


def with_lengths(world, lengths):
    return {"edits": {"key_lengths": lambda *_: np.array(lengths)}}


def lengths_are(world, words):
    return [with_lengths(world, [int(each) for each in numbers_said(words)])]


def finite_instead(world, words):
    said = numbers_said(words)[0]
    if "themselves plus" in words:

        def put(x, before):
            last = next(each for each in reversed(list(before)) if each.endswith("scores"))
            return np.where(np.isneginf(x), before[last] + said, x)

    else:

        def put(x, before):
            del before
            return np.where(np.isneginf(x), said, x)

    return [{"edits": {"masked_scores": put}}]


def joined_by_or(world, words):
    """A key is seen where the causal rule, the window, the mask or the lengths show it."""
    del words
    kind = world.kind
    query = np.arange(kind.n)[:, None] + kind.offset
    key = np.arange(kind.keys or kind.n)
    rules = [key <= query] if kind.causal else []
    if kind.window is not None:
        rules.append(np.abs(key - query) <= kind.window)
    if kind.mask:
        rules.append(world.recorded["mask"])
    if kind.lengths:
        rules.append(key < np.array(kind.lengths)[:, None, None, None])
    seen = rules[0]
    for rule in rules[1:]:
        seen = seen | rule

    def hide(x, before):
        del x
        scores = before[next(each for each in reversed(list(before)) if each.endswith("scores"))]
        return np.where(seen, scores, -np.inf)

    return [{"edits": {"masked_scores": hide}}]


def window_is(world, words):
    """The window is (2, 2), off by one: the keys that it lets be seen, beside the other rules."""
    left, right = map(int, re.search(r"\((\d+), (\d+)\)", words).groups())
    return [{"kind": world.kind.but(window=left)}] if left == right else []


def mask_unasked(world, words):
    kind = world.kind
    if "--causal" in words:
        return [{"kind": kind.but(causal=True)}]
    if window := re.search(r"--window (\d+|inf)(?:,\s*(\d+|inf))?", words):
        left, right = float(window[1]), float(window[2] or window[1])
        offset = kind.offset
        return hides_more(world, lambda q, k: (k >= q + offset - left) & (k <= q + offset + right))
    return []


# --- projections and heads ---


def crossed(world, words):
    """V with W_K is projected; queries with W_K and keys with W_Q."""
    ways = []
    pairs = re.findall(r"([QKV])(?: is projected)? with W_([QKV])", words)
    weights = {f"W_{name}": world.recorded[f"W_{other}"] for name, other in pairs}
    biases = {
        f"b_{name}": world.recorded[f"b_{other}"] for name, other in pairs if f"b_{other}" in world.recorded
    }
    for changes in (weights, weights | biases):
        if all(x.shape == world.recorded[name].shape for name, x in changes.items()):
            ways.append({"edits": {name: lambda *_, x=x: x for name, x in changes.items()}})
    return ways


def turned_over_heads(x, before, words):
    del before, words
    return own.rotate(x.swapaxes(-2, -3), wrong_pairs=False).swapaxes(-2, -3)


def over_heads(world, words):
    del words

    def turn(name):
        return lambda x, before: turned_over_heads(before[name], before, "")

    return [{"edits": {"Q_rotated": turn("Q"), "K_rotated": turn("K")}}]


def transposed_weights(x, before, words):
    del before, words
    return x.swapaxes(-1, -2)


def kv_order(world, words):
    """Kv heads are read in reverse order, some off, or one by all."""
    kind = world.kind
    times = kind.heads // kind.kv
    right = np.arange(kind.heads) // times
    if "reverse" in words:
        read = kind.kv - 1 - right
    elif one := re.fullmatch(r"all query heads read kv head (\d+)", words):
        read = np.full(kind.heads, int(one[1]))
    else:
        read = (right + int(re.search(r"(\d+) off", words)[1])) % kind.kv

    def otherwise(x, before):
        del before
        return x[..., ::times, :, :].take(read, axis=-3)

    groups = (("K_shared", "V_shared"), ("K_shared",), ("V_shared",))
    return [{"edits": dict.fromkeys(names, otherwise)} for names in groups]


def values_shifted(world, words):
    """Each weight is applied to the value so many places before or after its key."""
    del world
    by = int(re.search(r"(\d+) place", words)[1]) * (1 if "before" in words else -1)
    return [{"edits": {"attention_weights": lambda x, _: np.roll(x, -by, axis=-1)}}]


NAMED = {
    "scale-other": scaled_by,
    "scale-usual": scaled_usually,
    "scaled-twice": scaled_twice,
    "scores-already-scaled": already_scaled,
    "constant-factor": multiplied,
    "softcap-other": capped_otherwise,
    "softcap-clipped": clipped,
    "softmax-log": remade("attention_weights", with_logarithms),
    "softmax-over-queries": over_queries,
    "dropout-not-scaled": dropped,
    "softmax-unnormalized": of_exponentials(lambda e: e),
    "softmax-sums-transposed": of_exponentials(by_sums_of_rows),
    "softmax-twice": remade("attention_weights", twice_softmax),
    "softmax-hard": remade("attention_weights", hardest),
    "mean-of-values": remade("attention_weights", alike),
    "online-not-rescaled": averaged,
    "keys-padded": with_more_keys,
    "sink": with_more_keys,
    "softmax-epsilon": with_more_keys,
    "keys-dropped": keys_are_dropped,
    "mask-diagonal": not_itself,
    "mask-unasked": mask_unasked,
    "mask-finite": finite_instead,
    "padding-members": members_mixed_up,
    "padding-lengths": lengths_are,
    "window-off-by-one": window_is,
    "projection-mixed-up": crossed,
    "rotary-over-heads": over_heads,
    "weights-transposed": remade("attention_weights", transposed_weights),
    "zeros": remade("head_outputs", lambda x, before, words: 0 * x),
    "kv-heads-order": kv_order,
    "values-shifted": values_shifted,
    "top-k": highest_kept,
    "mask-joined-by-or": joined_by_or,
}
BOUNDED = {"dropout-left-on": dropout_is_on, "dropout-not-scaled": dropout_is_bare}
