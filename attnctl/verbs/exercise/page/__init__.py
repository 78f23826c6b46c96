"""One-file pages, sheets and grades: nothing outside them is read, and only their own script is run."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files


@cache
def asset(name: str) -> str:
    return (files(__name__) / name).read_text(encoding="utf-8")


def allow(text: str) -> str:
    """The source of a content policy that allows this very script or style."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def page(title: str, body: str, script: str = "") -> bytes:
    """A page of this body, which has escaped what is not ours. `script` is the name of an asset."""
    style, code = asset("style.css"), asset(script) if script else ""
    runs = allow(code) if code else "'none'"
    policy = f"default-src 'none'; style-src {allow(style)}; script-src {runs}; base-uri 'none'; "
    text = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
{body}
{f'<script type="module">{code}</script>' if code else ""}
</html>
"""
    return text.encode("utf-8", "backslashreplace")
