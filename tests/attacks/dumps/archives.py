"""Zip files and arrays made by hand, sound or not."""

import io
import struct
import zipfile
import zlib


def archive(members, method=zipfile.ZIP_STORED):
    """A zip file of these members."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method, compresslevel=9) as made:
        for name, data in members.items():
            made.writestr(name, data)
    return stream.getvalue()


def bomb(name, head, mebibytes, more=None):
    """A zip file with a member of zeros, which compress a thousandfold; made without compressing them."""
    zeros = bytes(2**20)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    start, packed = (packer.compress(each) + packer.flush(zlib.Z_FULL_FLUSH) for each in (head, zeros))
    data = start + packed * mebibytes + packer.flush()
    crc = zlib.crc32(head)
    for _ in range(mebibytes):
        crc = zlib.crc32(zeros, crc)
    facts = (20, 0, 8, 0, 33, crc, len(data), len(head) + mebibytes * 2**20, len(name), 0)
    others, directory = b"", b""
    if more:
        whole = archive(more)
        others, directory = whole[: whole.index(b"PK\1\2")], whole[whole.index(b"PK\1\2") : -22]
    local = struct.pack("<4s5H3I2H", b"PK\3\4", *facts) + name.encode() + data
    entry = struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, *facts, 0, 0, 0, 0, len(others)) + name.encode()
    count, length = 1 + len(more or {}), len(directory) + len(entry)
    return (
        others
        + local
        + directory
        + entry
        + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, length, len(others) + len(local), 0)
    )


def npy(header, data=b"", version=b"\1\0"):
    """A .npy with this header, a dict or text."""
    text = header if isinstance(header, bytes) else repr(header).encode()
    count = struct.pack("<H" if version[0] == 1 else "<I", len(text) + 1)
    return b"\x93NUMPY" + version + count + text + b"\n" + data


def described(shape, descr="<f8", *, fortran=False):
    """The header of a .npy."""
    return {"descr": descr, "fortran_order": fortran, "shape": shape}


ONE = npy(described((1,)), bytes(8))
