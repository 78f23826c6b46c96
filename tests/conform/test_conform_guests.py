"""What comes back from a target is hostile: it ends in a true verdict, or in exit 2 with the cause."""

import contextlib
import struct
import time

import numpy as np
import pytest

from attnctl.base.channel import (
    HEAD,
    LONGEST_TEXT,
    MARK,
    MOST_STRAY,
    Channel,
    ChannelError,
    Ended,
    Late,
    Message,
    make_pipes,
)
from attnctl.store.message import UnreadableError, decode, encode

RIGHT = """
import os, sys, threading, time
import numpy as np
def right(q, k, v):
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** .5
    p = np.exp(s - s.max(-1, keepdims=True)); return p / p.sum(-1, keepdims=True) @ v
def every(act):
    for n in range(3, 4096):
        try: act(n)
        except OSError: pass
"""

RIGHT_ONES = {
    "stray bytes into low descriptors": (
        "def f(q, k, v):\n"
        "    for n in range(3, 20):\n"
        '        try: os.write(n, b"x" * 8)\n        except OSError: pass\n'
        "    return right(q, k, v)"
    ),
    "stray bytes into every descriptor": (
        'def f(q, k, v):\n    every(lambda n: os.write(n, b"x" * 8)); return right(q, k, v)'
    ),
    "what looks like the beginning of an answer": (
        'def f(q, k, v):\n    every(lambda n: os.write(n, b"\\x93msg" * 20)); return right(q, k, v)'
    ),
    "a fork that goes on": "def f(q, k, v):\n    os.fork(); return right(q, k, v)",
    "a fork that stays": (
        "def f(q, k, v):\n    if os.fork() == 0: time.sleep(600)\n    return right(q, k, v)"
    ),
    "words without end": (
        "def f(q, k, v):\n    print('x' * 100_000); print('y' * 100_000, file=sys.stderr)\n"
        "    return right(q, k, v)"
    ),
    "its own signal handlers": (
        "import signal\ndef f(q, k, v):\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGPIPE, signal.SIG_IGN)\n"
        "    return right(q, k, v)"
    ),
}

REFUSED = {
    "every descriptor is closed": (
        "def f(q, k, v):\n    os.closerange(3, 4096); return right(q, k, v)",
        "it closed the descriptor that its answers go over",
    ),
    "every descriptor is closed, and it stays": (
        "def f(q, k, v):\n    os.closerange(3, 4096); time.sleep(600)",
        "it closed the descriptor that its answers go over",
    ),
    "more stray bytes than anyone reads": (
        ('def f(q, k, v):\n    every(lambda n: [os.write(n, b"x" * 65536) for _ in range(64)])\n'
        "    return right(q, k, v)"),
        "it wrote more than",
    ),
    "descriptors that are other files": (
        ("def f(q, k, v):\n"
        '    null = os.open("/dev/null", os.O_RDWR)\n'
        "    every(lambda n: os.dup2(null, n) if n != null else 0)\n"
        "    return right(q, k, v)"),
        "it closed the descriptor that its answers go over",
    ),
    "SystemExit at once": ("sys.exit(0)\ndef f(q, k, v): return right(q, k, v)", "could not be loaded"),
    "SystemExit of an attribute": (
        ("class F:\n    def __getattr__(self, name): raise SystemExit(0)\n"
        "    def __call__(self, q, k, v): return right(q, k, v)\nf = F()"),
        "could not be loaded",
    ),
    "a default that cannot be written": (
        "def f(q, k, v, x=10**5000): return right(q, k, v)", "could not be loaded"
    ),
}  # fmt: skip


@pytest.fixture
def conform(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)

    def run(text, *words):
        (tmp_path / "kernel.py").write_text(RIGHT + text)
        begun = time.monotonic()
        done = call("conform", "kernel.py:f", "--quick", "--timeout", "3", "--feature", "attention", *words)
        assert time.monotonic() - begun < 60
        return done

    return run


@pytest.mark.sample(5)
@pytest.mark.parametrize("text", RIGHT_ONES.values(), ids=RIGHT_ONES)
def test_a_right_kernel_is_right_whatever_else_it_does(conform, text):
    done = conform(text)
    assert done.code == 0, done.out + done.err


@pytest.mark.sample(3)
@pytest.mark.parametrize(("text", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_said(conform, text, words):
    done = conform(text)
    assert done.code in {1, 2}
    assert words in done.out + done.err
    assert "wrong-shape" not in done.out
    assert "report it" not in done.err


# --- the channel ---

SECRET = b"s" * 16


@pytest.fixture
def channel():
    """Our side of a channel, and what writes bytes as its other side."""
    ours, theirs = make_pipes()
    yield Channel(ours, SECRET), Channel(theirs, SECRET), theirs.writes.write
    ours.close()
    theirs.close()


def soon(seconds=0.3):
    return time.monotonic() + seconds


def test_an_answer_has_the_number_of_its_request(channel):
    one, other, _ = channel
    for number in (1, 1, 2, 7):
        other.send(Message(b"text %d" % number, b"data"), number)
    assert one.receive(2, soon())[1] == Message(b"text 2", b"data")
    with pytest.raises(Late):
        one.receive(3, soon())


def test_what_stands_between_is_skipped(channel):
    one, other, write = channel
    write(b"x" * 1000 + MARK + b"y" * 100 + MARK)
    other.send(Message(b"1", b""), 1)
    write(MARK * 10)
    other.send(Message(b"2", b""), 2)
    assert [one.receive(number, soon())[1].text for number in (1, 2)] == [b"1", b"2"]


def head(texts, numbers, checksum=0, secret=SECRET):
    return HEAD.pack(MARK, 1, secret, texts, numbers, checksum)


HOSTILE = {
    "nothing": (b"", Late),
    "half a head": (head(3, 0)[:20], Late),
    "half a message": (head(30, 0) + b"x", Late),
    "a text too long": (head(LONGEST_TEXT + 1, 0), ChannelError),
    "arrays too large": (head(1, 1 << 60), ChannelError),
    "another checksum": (head(1, 0) + b"x", ChannelError),
    "of another channel": (head(0, 0, secret=b"t" * 16), Late),
}


@pytest.mark.parametrize(("data", "error"), HOSTILE.values(), ids=HOSTILE)
def test_a_message_is_bounded_and_comes_in_time(channel, data, error):
    one, _, write = channel
    write(data)
    begun = time.monotonic()
    with pytest.raises(error):
        one.receive(1, soon())
    assert time.monotonic() - begun < 2


def test_a_message_that_comes_in_drops_has_one_deadline(channel):
    """A byte now and then does not move it."""
    import threading

    one, _, write = channel
    goes_on = True

    def drip():
        for byte in head(60, 0) + b"x" * 60:
            if goes_on:
                write(bytes([byte]))
                time.sleep(0.05)

    thread = threading.Thread(target=drip)
    thread.start()
    begun = time.monotonic()
    with pytest.raises(Late):
        one.receive(1, soon(0.5))
    goes_on = False
    thread.join()
    assert time.monotonic() - begun < 3


def test_an_end_that_is_closed_is_said(channel):
    one, other, _ = channel
    other.ends.close()
    with pytest.raises(Ended):
        one.receive(1, soon())
    with pytest.raises(Ended):
        one.send(Message(b"x", b""), 1, soon())


def test_nobody_waits_for_one_who_reads_nothing(channel):
    one, _, _ = channel
    with pytest.raises(Late):
        one.send(Message(b"", bytes(1 << 24)), 1, soon())


def test_stray_bytes_have_a_limit(channel):
    import threading

    one, _, write = channel

    def flood():
        with contextlib.suppress(OSError):  # nobody reads on once it is too much
            write(b"x" * (MOST_STRAY + 70_000))

    thread = threading.Thread(target=flood, daemon=True)
    thread.start()
    with pytest.raises(ChannelError, match="descriptor of others"):
        one.receive(1, soon(20))


# --- values ---

VALUES = [
    None, True, 0, -(2**70), 0.1, float("inf"), "", "\ud800\x1b[31m", [], (), {}, ((1, [2]), {"a": (3.0,)}),
    {"arrays": (np.zeros((2, 3)), np.float32(1.5), np.ones((0, 4), np.int8), np.array(True))},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_reads_back(value):
    found = decode(encode(value))
    assert repr(found) == repr(value)
    assert type(found) is type(value)


UNREADABLE = {
    "no JSON": (b"{", b""),
    "no text": (b"\xff\xfe", b""),
    "deep": (b"[" * 100 + b"]" * 100, b""),
    "deeper": (b"[" * 10**6, b""),
    "a number without end": (b"1" * 10**5, b""),
    "an object of a kind that is none": (b'{"pickle": ["x"]}', b""),
    "an object of two kinds": (b'{"tuple": [], "array": []}', b""),
    "an object that is none": (b'{"object": [[1]]}', b""),
    "an array of objects": (b'{"array": ["object", [1], false]}', bytes(8)),
    "an array of a negative size": (b'{"array": ["float64", [-1], false]}', b""),
    "an array of a size that is none": (b'{"array": ["float64", [true], false]}', bytes(8)),
    "an array of more than there is": (b'{"array": ["float64", [2], false]}', bytes(8)),
    "an array of 2^60": (b'{"array": ["int8", [1073741824, 1073741824], false]}', bytes(8)),
    "an array of nine axes": (b'{"array": ["int8", [1,1,1,1,1,1,1,1,1], false]}', bytes(1)),
    "bytes of no array": (b"1", bytes(1)),
}


@pytest.mark.parametrize(("text", "data"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_is_no_value_is_refused(text, data):
    with pytest.raises(UnreadableError):
        decode(Message(text, data))


def test_any_bytes_are_refused_or_read():
    draw = np.random.default_rng(0)
    good = encode({"outputs": (np.zeros((2, 3)),), "calls": 3})
    for _ in range(2000):
        text = bytearray(good.text)
        text[draw.integers(len(text))] = draw.integers(256)
        with contextlib.suppress(UnreadableError):
            decode(Message(bytes(text), good.data))


def test_a_head_is_as_long_as_it_says():
    assert HEAD.size == struct.calcsize("<4sQ16sIQI")
