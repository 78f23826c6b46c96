"""A tokenizer.json, carried out in a process of its own, which may take so much memory and no more.

Its normalizers rewrite a text as often as they like: a file of a few lines makes gigabytes of a word. The
library that carries it out knows no limit, so the system holds it to one. Texts go to that process and
ids come back, over the channel that programs are asked through.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from attnctl.base.channel import Channel, ChannelError, Ends, Message, make_pipes
from attnctl.base.descriptors import OwnDescriptor
from attnctl.base.errors import AttnError
from attnctl.base.programs import Said, begin, end_with_parent, kill, signal_name

OUT_OF_MEMORY = 112
"""The exit code of a process that may take no more memory."""

NO_MEMORY = b"memory allocation of"
"""What the library says before it aborts where it is given none."""

LONGEST_END = 5.0
"""Seconds that a process takes to end when it has closed what it answers over."""

LONGEST_TEMPLATE = 10
"""Seconds that a chat template may take."""

ONE_THREAD = {"TOKENIZERS_PARALLELISM": "false", "MALLOC_ARENA_MAX": "1"}
"""Each thread would reserve memory of its own, which counts."""


class Encoded(NamedTuple):
    """What a text becomes."""

    ids: list[int]
    tokens: list[str]
    special_tokens_mask: list[int]
    type_ids: list[int]


class GuestTokenizer:
    """What is asked of `tokenizers.Tokenizer`, by the same names. What fails raises AttnError."""

    def __init__(self, path: Path, limit: int, text: str | None = None) -> None:
        """Of the file, or of a text in its place: the tokenizer.json that another file's metadata makes."""
        self.path = path
        self.limit = limit
        self.number = 0
        self.said = Said()
        secret = os.urandom(16)
        ours, theirs = make_pipes()
        self.channel = Channel(ours, secret)
        descriptors = [descriptor.number for descriptor in theirs]
        words = [sys.executable, "-m", "attnctl.models.tokenizing", *map(str, descriptors), secret.hex()]
        path_of_modules = os.pathsep.join(filter(None, sys.path))
        options: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "env": {**os.environ, **ONE_THREAD, "PYTHONPATH": path_of_modules},
            "pass_fds": descriptors,
        }
        try:
            self.process = begin(words, self.said, self.said, **options)
        finally:
            theirs.close()
        self.close = weakref.finalize(self, end, self.process, ours)

        settings = self.ask("load", str(path), limit, text)
        self.truncation: dict[str, Any] | None = settings["truncation"]
        self.padding: dict[str, Any] | None = settings["padding"]

    def no_truncation(self) -> None:
        self.ask("no_truncation")

    def no_padding(self) -> None:
        self.ask("no_padding")

    def encode(self, text: str, pair: str | None = None, *, add_special_tokens: bool = True) -> Encoded:
        return Encoded(*self.ask("encode", text, pair, add_special_tokens))

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return str(self.ask("decode", [*ids], skip_special_tokens))

    def render(self, template: str, special: Mapping[str, str], text: str) -> str:
        """A message as a chat template writes it."""
        return str(self.ask("render", template, dict(special), text))

    def id_to_token(self, number: int) -> str | None:
        token: str | None = self.ask("id_to_token", number)
        return token

    def ask(self, name: str, *given: Any) -> Any:
        self.number += 1
        try:
            self.channel.send(message_of([name, given]), self.number)
            _, message = self.channel.receive(self.number)
        except ChannelError:
            raise AttnError(f"{self.path}: {self.read_end()}") from None
        answer = json.loads(message.data)
        if "error" in answer:
            raise AttnError(f"{self.path}: {answer['error']}")
        return answer["value"]

    def read_end(self) -> str:
        """Why the process ended."""
        from attnctl.math.engine.cost import size_text

        with suppress(subprocess.TimeoutExpired):
            self.process.wait(LONGEST_END)
        code = self.process.poll()
        self.close()
        output = self.said.end()
        if code == OUT_OF_MEMORY or NO_MEMORY in output:
            most = f"the {size_text(self.limit)} of memory that there may be"
            return f"its tokenizer takes more than {most}; give --ids 1,2,3, or raise --max-memory"
        if code == -signal.SIGALRM:
            return f"its chat template takes more than {LONGEST_TEMPLATE} seconds; leave --chat out"
        if code is not None and code < 0:
            return f"its tokenizer died of {signal_name(-code)}"

        lines = [line for line in output.decode(errors="replace").split("\n") if line.strip()]
        last = lines[-1][:300] if lines else "it said nothing"
        return f"its tokenizer failed: {last}"


def end(process: subprocess.Popen[bytes], ends: Ends) -> None:
    ends.close()
    kill(process)


def message_of(value: Any) -> Message:
    """JSON as a message; in its bytes, of which there may be more than of a message's text."""
    return Message(b"", json.dumps(value).encode())


# --- the other end: the process itself ---


def load(path: str, limit: int, text: str | None) -> Any:
    """The tokenizer of a file or a text, in a process that from now on may take so many bytes more."""
    from tokenizers import Tokenizer

    limit_process(limit)
    return Tokenizer.from_file(path) if text is None else Tokenizer.from_str(text)


def limit_process(limit: int) -> None:
    """Let this process take `limit` bytes more than it has, on systems that hold it to that."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (ImportError, OSError, ValueError):
        return
    most = pages * resource.getpagesize() + limit
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def encode(tokenizer: Any, text: str, pair: str | None, add_special_tokens: bool) -> list[Any]:
    words = [text] if pair is None else [text, pair]
    encoded = tokenizer.encode(*words, add_special_tokens=add_special_tokens)
    return [encoded.ids, encoded.tokens, encoded.special_tokens_mask, encoded.type_ids]


def render_message(tokenizer: Any, template: str, special: Mapping[str, str], text: str) -> str:
    """A message by a chat template; the system ends a process whose template does not come to an end."""
    from attnctl.models.chat import render

    signal.alarm(LONGEST_TEMPLATE)
    try:
        return render(template, special, text)
    finally:
        signal.alarm(0)


REQUESTS: Mapping[str, Callable[..., Any]] = {
    "encode": encode,
    "decode": lambda tokenizer, ids, skip: tokenizer.decode(ids, skip_special_tokens=skip),
    "render": render_message,
    "id_to_token": lambda tokenizer, number: tokenizer.id_to_token(number),
    "no_truncation": lambda tokenizer: tokenizer.no_truncation(),
    "no_padding": lambda tokenizer: tokenizer.no_padding(),
}


def serve(channel: Channel) -> None:
    """Load the tokenizer that the first request names, and answer the others."""
    tokenizer = None
    while True:
        try:
            number, message = channel.receive(None)
        except ChannelError:
            return
        name, arguments = json.loads(message.data)
        try:
            if tokenizer is None:
                tokenizer = load(*arguments)
                answer = {"value": {"truncation": tokenizer.truncation, "padding": tokenizer.padding}}
            else:
                answer = {"value": REQUESTS[name](tokenizer, *arguments)}
            sent = message_of(answer)
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        except ModuleNotFoundError as error:
            sent = message_of({"error": f"{error.name} is not installed; pip install 'attnctl[hf]'"})
        except Exception as error:  # noqa: BLE001  (tokenizers raises plain Exception)
            what = "not a tokenizer: " if tokenizer is None else ""
            sent = message_of({"error": f"{what}{error}"})
        channel.send(sent, number)


def main(reads: str, writes: str, secret: str) -> None:
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ends = Ends(OwnDescriptor(int(reads)), OwnDescriptor(int(writes)))
    serve(Channel(ends, bytes.fromhex(secret)))


if __name__ == "__main__":
    main(*sys.argv[1:])
