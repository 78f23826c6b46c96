"""An image as numbers, read by a decoder that shares no code with what writes it (ISO/IEC 15948)."""

import zlib
from struct import unpack

import numpy as np


def chunks(data):
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at = 8
    while at < len(data):
        (size,) = unpack(">I", data[at : at + 4])
        name, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(name + body)
        yield name, body
        at += 12 + size


def paeth(a, b, c):
    p = a + b - c
    return min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]


def unfiltered(raw, rows, stride, step):
    """The bytes of each line, its filter undone."""
    lines, above = [], np.zeros(stride, dtype=np.uint8)
    for row in range(rows):
        start = row * (stride + 1)
        kind, line = raw[start], np.frombuffer(raw, np.uint8, stride, start + 1).copy()
        if kind == 2:
            line += above
        elif kind == 1:
            line = np.cumsum(line.reshape(-1, step), axis=0, dtype=np.uint8).reshape(-1)
        elif kind in {3, 4}:
            out = line.tolist()
            up = above.tolist()
            for i in range(stride):
                left = out[i - step] if i >= step else 0
                corner = up[i - step] if i >= step else 0
                guess = (left + up[i]) // 2 if kind == 3 else paeth(left, up[i], corner)
                out[i] = (out[i] + guess) & 255
            line = np.array(out, dtype=np.uint8)
        lines.append(line)
        above = line
    return np.array(lines)


def decoded(data):
    """A PNG of 8 bits as (row, column, red green blue alpha)."""
    parts = {}
    for name, body in chunks(data):
        parts[name] = parts.get(name, b"") + body
    columns, rows, depth, kind = unpack(">IIBB", parts[b"IHDR"][:10])
    assert depth == 8
    step = {2: 3, 3: 1, 6: 4}[kind]
    pixels = unfiltered(zlib.decompress(parts[b"IDAT"]), rows, columns * step, step)
    pixels = pixels.reshape(rows, columns, step)
    if kind == 3:
        palette = np.frombuffer(parts[b"PLTE"], np.uint8).reshape(-1, 3)
        alpha = np.full(len(palette), 255, dtype=np.uint8)
        clear = np.frombuffer(parts.get(b"tRNS", b""), np.uint8)
        alpha[: len(clear)] = clear
        return np.concatenate([palette, alpha[:, None]], axis=1)[pixels[..., 0]]
    if kind == 2:
        return np.concatenate([pixels, np.full((rows, columns, 1), 255, np.uint8)], axis=2)
    return pixels
