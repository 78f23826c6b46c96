"""`attnctl` for the scripts of fast tests: a process that has imported everything forks for each call.

A start of the real executable is mostly imports, and a script has several. Arguments, folder,
environment and open files are those of the call. `-m slow` and `Workplace.process` start the real one.
"""

import io
import os
import signal
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

REAL = Path(sysconfig.get_path("scripts")) / "attnctl"
CLIENT = """#!{python} -ISs
import os, socket, sys
environ = [f"{{key}}={{value}}" for key, value in os.environ.items()]
files = [file for file in map(int, os.listdir("/dev/fd")) if os.path.exists(f"/dev/fd/{{file}}")]
words = [os.getcwd(), " ".join(map(str, files)), str(len(sys.argv)), *sys.argv, *environ]
data = "\\0".join(words).encode("utf-8", "surrogateescape")
server = socket.socket(socket.AF_UNIX)
try:
    server.connect({address!r})
    socket.send_fds(server, [len(data).to_bytes(8, "big")], files)
except OSError:
    files = []
if not {{0, 1, 2}} <= set(files):  # streams that are closed are for the real one
    os.execv({real!r}, [{real!r}, *sys.argv[1:]])
server.sendall(data)
os._exit(int.from_bytes(server.recv(1) or b"\\xff", "big"))
"""


def start(folder):
    """Start a warm process; the folder gets the `attnctl` that calls it. Gives the process."""
    address = str(folder / "socket")
    command = folder / "attnctl"
    command.write_text(CLIENT.format(python=sys.executable, address=address, real=str(REAL)))
    command.chmod(0o755)
    environ = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, __file__, address], stdout=subprocess.PIPE, env=environ)
    assert process.stdout.readline() == b"ready\n"
    return process


def serve(address):
    """Fork for each call that comes."""
    import rich.console
    import rich.table  # noqa: F401
    import yaml  # noqa: F401

    from attnctl.cli.program import program

    with Path(os.devnull).open("w") as null:
        for args in ("run I", "check -", "diff - -", "stats -"):
            program(args.split(), io.StringIO(), null, null)
    server = socket.socket(socket.AF_UNIX)
    server.bind(address)
    server.listen(64)
    print("ready", flush=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = server.accept()
        if os.fork() == 0:
            server.close()
            answer(connection)
        connection.close()


def answer(connection):
    """Become the call: its streams, folder and environment; send back its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, received, _, _ = socket.recv_fds(connection, 8, 64)
    data = b""
    while len(data) < int.from_bytes(size, "big"):
        data += connection.recv(1 << 20)
    folder, files, count, *words = data.decode("utf-8", "surrogateescape").split("\0")
    sys.argv, environ = words[: int(count)], words[int(count) :]
    back = os.dup2(connection.fileno(), 500)
    moved = [os.dup2(file, 600 + file) for file in received]
    os.closerange(3, back)
    for number, file in zip(map(int, files.split()), moved, strict=True):
        os.dup2(file, number)
    os.closerange(back + 1, 1024)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(each.split("=", 1) for each in environ)
    sys.stdin, sys.stdout, sys.stderr = open_streams()
    code = call()
    os.write(back, bytes([code]))
    os._exit(code)


def open_streams():
    encoding, _, errors = os.environ.get("PYTHONIOENCODING", "").partition(":")
    buffered = not os.environ.get("PYTHONUNBUFFERED")
    for number, mode in ((0, "rb"), (1, "wb"), (2, "wb")):
        strict = errors or ("backslashreplace" if number == 2 else "surrogateescape")
        raw = open(number, mode, closefd=False)  # noqa: SIM115  (for the life of the process)
        yield io.TextIOWrapper(
            raw, encoding or "utf-8", strict, line_buffering=number == 2, write_through=not buffered
        )


def call():
    from attnctl import cli

    cli.end = sys.exit  # this process ends once its code is sent
    try:
        return cli.main() or 0
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.stdout.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
