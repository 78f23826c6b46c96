"""A service that is posted each call: right, wrong, one that refuses, and nobody there."""

import io
import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest


def attend(given, scale=1.0):
    q, k, v = (given[name].astype(float) for name in "QKV")
    scores = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5 * scale
    if given.get("causal"):
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


def as_npz(array):
    stream = io.BytesIO()
    np.savez(stream, output=array)
    return 200, stream.getvalue()


def as_json(array):
    return 200, json.dumps({"output": array.tolist()}).encode()


def refuse(given):
    return (400, b"no causal") if given.get("causal", False) else as_npz(attend(given))


def close(given):
    raise ConnectionAbortedError  # the handler ends, and says nothing


def sleep(given):
    time.sleep(1)
    return as_npz(attend(given))


@contextmanager
def serving(answer):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            code, said = answer(dict(np.load(io.BytesIO(body))))
            self.send_response(code)
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # it would be printed
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/attend"
    finally:
        server.shutdown()
        server.server_close()


WORDS = ("--quick", "--dtype", "float32", "--feature", "attention", "--json")


@pytest.mark.parametrize("give", [as_npz, as_json])
def test_a_right_service(call, give):
    with serving(lambda given: give(attend(given).astype(np.float32))) as url:
        done = call("conform", "--url", url, *WORDS)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["target"], found["agrees"]) == (url, True)


def test_a_wrong_service(call, tmp_path):
    with serving(lambda given: as_npz(attend(given, scale=2.0).astype(np.float32))) as url:
        done = call("conform", "--url", url, *WORDS, "--save", str(tmp_path))
    assert done.code == 1
    (feature,) = json.loads(done.out)["features"]
    assert feature["status"] == "failed"
    assert feature["replay"].startswith(f"attnctl conform --url {url} ")


def test_options_are_those_of_its_claims(call, tmp_path):
    claims = tmp_path / "claims.yaml"
    claims.write_text("features: [causal]\n", encoding="utf-8")
    words = ("--quick", "--dtype", "float32", "--feature", "causal", "--claims", str(claims), "--json")
    with serving(lambda given: as_npz(attend(given).astype(np.float32))) as url:
        right = call("conform", "--url", url, *words)
    with serving(refuse) as url:
        refused = call("conform", "--url", url, *words, "--save", str(tmp_path))
    assert (right.code, refused.code) == (0, 1)
    assert "it answers 400 Bad Request: no causal" in refused.out


def test_one_that_closes_the_connection(call):
    with serving(close) as url:
        done = call("conform", "--url", url, *WORDS)
    assert done.code in {1, 2}
    assert "it closed the connection" in done.out


def test_one_that_is_silent(call, tmp_path):
    with serving(sleep) as url:
        done = call("conform", "--url", url, *WORDS, "--timeout", "0.2", "--save", str(tmp_path))
    assert done.code == 1
    assert "no answer within 0.2 s" in done.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--url", "http://127.0.0.1:9/x"], "--url http://127.0.0.1:9/x: it cannot be reached: "),
        (["--url", "localhost"], "--url localhost: not an address; write it like http://localhost:8000"),
        (["--url", "http://x", "a:b"], "a:b: --url is the TARGET; leave one of them out"),
        (["--url", "http://x", "--framework", "torch"], "--framework torch: a service reads a file"),
    ],
)
def test_what_is_no_service(call, words, said):
    done = call("conform", *words, "--quick", "--feature", "attention")
    assert done.code == 2
    assert said in done.err
