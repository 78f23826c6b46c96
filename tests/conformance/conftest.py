"""Says at the end of a test run how many of ONNX's cases passed, and what they exercise."""

from __future__ import annotations

from collections import Counter


def pytest_terminal_summary(terminalreporter):
    counts = Counter(
        word
        for report in terminalreporter.stats.get("passed", [])
        for name, words in report.user_properties
        if name == "onnx"
        for word in words
    )
    operators = {name: counts.pop(name, 0) for name in ("Attention", "RotaryEmbedding", "Softmax")}
    if total := sum(operators.values()):
        parts = ", ".join(f"{name} {count}" for name, count in operators.items())
        features = " · ".join(f"{name} {count}" for name, count in counts.items())
        terminalreporter.write_line(f"ONNX node cases passed: {total} ({parts})")
        terminalreporter.write_line(f"of these: {features}")
