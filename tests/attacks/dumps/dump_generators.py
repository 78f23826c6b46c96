"""Hostile dumps: each generator makes one file and says what it tries."""

import io
import json
import os
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable
from gzip import compress

import numpy as np

GENERATORS: dict[str, Callable[[], bytes]] = {}


def hostile(make: Callable[[], str | bytes]) -> Callable[[], bytes]:
    """Enter a generator into the corpus under its name."""

    def as_bytes() -> bytes:
        made = make()
        return made.encode() if isinstance(made, str) else made

    GENERATORS[make.__name__] = as_bytes
    return as_bytes


# --- JSON ---


def dump(data="[[1.0]]", more="", **fields):
    """A dump of one step with these fields, its data as text."""
    step = {
        "formula": "",
        "axes": ["query", "key"],
        "inputs": [],
        "shape": [1, 1],
        "dtype": "float64",
    } | fields
    text = json.dumps(step)[:-1]
    return f'{{"schema": "attnctl/trace/1", {more} "steps": {{"scores": {text}, "data": {data}}}}}}}'


@hostile
def brackets():
    """A nesting that overflows the stack of a recursive parser."""
    return "[" * 1_000_000


@hostile
def braces():
    """The same with objects."""
    return '{"a":' * 300_000


@hostile
def brackets_in_data():
    """The same inside a step, closed again."""
    return dump("[" * 100_000 + "]" * 100_000)


@hostile
def nested_header():
    """A header just within the parser's depth, too deep for whoever walks it afterwards."""
    return dump(more='"config": ' + '{"a":' * 800 + "1" + "}" * 800 + ",")


@hostile
def empty_lists():
    """Many small objects from few bytes: memory far beyond the size of the file."""
    return '{"Q": [' + "[]," * 3_000_000 + "[]]}"


@hostile
def empty_objects():
    """The same with objects."""
    return '{"Q": [' + "{}," * 2_000_000 + "{}]}"


@hostile
def many_keys_one_twice():
    """Hundreds of thousands of keys, the last one twice: quadratic for a careless search."""
    return "{" + ",".join(f'"k{i}": 1' for i in range(300_000)) + ', "k299999": 1}'


@hostile
def many_wrong_steps():
    """A hundred thousand problems, none of which may fill the screen."""
    steps = ",".join(f'"s{i}": 1' for i in range(100_000))
    return f'{{"schema": "attnctl/trace/1", "steps": {{{steps}}}}}'


@hostile
def keys_twice():
    """Two values for one key: which one counts depends on the reader."""
    return dump(more='"tokens": ["a"], "tokens": ["b"],')


@hostile
def bare_nan():
    """NaN as Python writes it, which is not JSON."""
    return dump("[[NaN]]")


@hostile
def bare_infinity():
    """Infinity as Python writes it."""
    return dump("[[-Infinity]]")


@hostile
def long_number():
    """A whole number of a million digits: quadratic to convert."""
    return dump("[[" + "9" * 1_000_000 + "]]")


@hostile
def large_number():
    """A whole number that no float can hold."""
    return dump(f"[[{10**400}]]")


@hostile
def long_string():
    """A name of twenty megabytes, which no message may repeat."""
    return dump(inputs=["x" * 20_000_000])


@hostile
def escapes_in_a_name():
    """A name that would move the cursor and change the colour of the terminal."""
    return '{"\\u001b[2J\\u001b[31m\\u202e\\n": ["x"]}'


@hostile
def escapes_in_the_schema():
    """The same in the schema that is refused by name."""
    return '{"schema": "attnctl/trace/\\u001b[2J\\n9", "steps": {}}'


@hostile
def later_schema():
    """A dump of another time."""
    return dump().replace("trace/1", "trace/7")


@hostile
def shape_beyond_memory():
    """A shape of exabytes over one number."""
    return dump(shape=[2**31, 2**31])


@hostile
def shape_of_nothing():
    """A shape of no numbers with rows without end."""
    return dump("[]", shape=[10**15, 0])


@hostile
def shape_negative():
    """A size below zero."""
    return dump(shape=[-1, -1])


@hostile
def shape_not_of_the_data():
    """More numbers in the shape than there are."""
    return dump(shape=[2, 2])


@hostile
def ragged():
    """Rows of different lengths."""
    return dump("[[1, 2], [3]]", shape=[2, 2])


@hostile
def strings_for_numbers():
    """Numbers in quotes, which NumPy would convert."""
    return dump('[["1e3"]]')


@hostile
def code_for_a_number():
    """An expression where a number belongs."""
    return dump("[[\"__import__('os').system('touch /tmp/attnctl-was-here')\"]]")


@hostile
def an_op_that_is_none():
    """The name of a class that is no op."""
    return dump(op={"name": "__class__"})


@hostile
def an_op_without_end():
    """Fields that an op does not have, and of the wrong type."""
    return dump(op={"name": "Hide", "rules": [{"name": "window", "left": "x", "apply": 1}]})


@hostile
def a_circle():
    """A step that reads itself."""
    return dump(inputs=["scores"])


@hostile
def utf_16():
    """An encoding that JSON used to allow."""
    return dump().encode("utf-16")


@hostile
def not_utf_8():
    """A byte that is no character."""
    return dump(formula="\udcff").encode("ascii").replace(b"\\udcff", b"\xff")


@hostile
def cut_off():
    """The end is missing."""
    return dump()[:-10]


@hostile
def two_values():
    """A second value after the first that is no dump."""
    return dump() + ' "more"'


# --- archives ---


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


@hostile
def zip_cut_off():
    """The directory at the end of the archive is missing."""
    return archive({"Q.npy": ONE})[:-40]


@hostile
def zip_of_nothing():
    """An archive without members."""
    return archive({})


@hostile
def zip_of_something_else():
    """A sound archive without arrays."""
    return archive({"word/document.xml": "<xml/>"})


@hostile
def zip_bomb():
    """A gigabyte of zeros out of a megabyte."""
    return bomb("Q.npy", npy(described((2**27,))), 1024)


@hostile
def zip_bomb_in_the_header():
    """An array header of hundreds of megabytes, compressed well."""
    return bomb("Q.npy", b"\x93NUMPY\2\0" + struct.pack("<I", 300 << 20), 300)


@hostile
def zip_bomb_beyond_the_shape():
    """An array of one number with a gigabyte behind it."""
    return bomb("Q.npy", ONE, 200)


@hostile
def header_of_ours_a_bomb():
    """The JSON of a dump's header, hundreds of megabytes of it."""
    return bomb("attnctl.json.npy", npy(described((), f"|S{200 << 20}")), 200, {"Q.npy": ONE})


@hostile
def header_of_ours_numbers():
    """A header that is an array of numbers."""
    return archive({"Q.npy": ONE, "attnctl.json.npy": ONE})


@hostile
def header_of_ours_no_json():
    """A header that is a pickle."""
    data = pickle.dumps({})
    return archive({"Q.npy": ONE, "attnctl.json.npy": npy(described((), f"|S{len(data)}"), data)})


class Run:
    """What a pickle can do to whoever loads it."""

    def __reduce__(self):
        return os.system, ("touch /tmp/attnctl-was-here",)


@hostile
def pickle_alone():
    """A pickle that runs a command."""
    return pickle.dumps(Run())


@hostile
def pickled_array():
    """An array of objects, one of which runs a command."""
    stream = io.BytesIO()
    np.save(stream, np.array([Run()], dtype=object), allow_pickle=True)
    return archive({"Q.npy": stream.getvalue()})


@hostile
def pickle_in_a_member():
    """A bare pickle under the name of an array."""
    return archive({"Q.npy": pickle.dumps(Run())})


@hostile
def array_of_objects_without_data():
    """Pointers read from a file."""
    return archive({"Q.npy": npy(described((1,), "|O"), bytes(8))})


@hostile
def array_of_records():
    """A type with fields."""
    return archive({"Q.npy": npy(described((1,), [("a", "<f8")]), bytes(8))})


@hostile
def array_of_subarrays():
    """A type that multiplies the shape."""
    return archive({"Q.npy": npy(described((1,), ("<f8", (2**40,))), bytes(8))})


@hostile
def array_of_long_texts():
    """A type of two gigabytes an item."""
    return archive({"Q.npy": npy(described((1,), "<U536870911"), bytes(8))})


@hostile
def array_of_dates():
    """A type whose text NumPy has a parser for."""
    return archive({"Q.npy": npy(described((1,), "<M8[" + "9" * 5000 + "s]"), bytes(8))})


@hostile
def array_beyond_memory():
    """A shape of exabytes over eight bytes."""
    return archive({"Q.npy": npy(described((2**62,)), bytes(8))})


@hostile
def array_whose_size_overflows():
    """A shape whose product is zero in 64 bits."""
    return archive({"Q.npy": npy(described((2**32, 2**32)))})


@hostile
def array_of_nothing_without_end():
    """A shape of no numbers with rows without end."""
    return archive({"Q.npy": npy(described((2**62, 0)))})


@hostile
def array_of_negative_size():
    """Two negative sizes whose product fits."""
    return archive({"Q.npy": npy(described((-1, -1)), bytes(8))})


@hostile
def array_of_true_size():
    """A size that is a truth value."""
    return archive({"Q.npy": npy(described((True,)), bytes(8))})


@hostile
def array_of_many_axes():
    """More axes than NumPy has."""
    return archive({"Q.npy": npy(described((1,) * 100), bytes(8))})


@hostile
def array_cut_off():
    """Fewer numbers than the shape says."""
    return archive({"Q.npy": npy(described((2,)), bytes(8))})


@hostile
def npy_header_deep():
    """An array header that overflows a recursive parser."""
    return archive({"Q.npy": npy(b"[" * 9000)})


@hostile
def npy_header_of_signs():
    """The same with minus signs."""
    return archive({"Q.npy": npy(b"-" * 9000 + b"1")})


@hostile
def npy_header_of_code():
    """An array header that runs a command."""
    code = b"__import__('os').system('touch /tmp/attnctl-was-here')"
    return archive({"Q.npy": npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (" + code + b",)}")})


@hostile
def npy_header_power():
    """An array header that computes without end."""
    return archive({"Q.npy": npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (9**9**9,)}")})


@hostile
def npy_header_long():
    """A header whose length is four gigabytes."""
    return archive({"Q.npy": b"\x93NUMPY\2\0\xff\xff\xff\xff" + bytes(100)})


@hostile
def npy_version_9():
    """A version of the format that there is not."""
    return archive({"Q.npy": npy(described((1,)), bytes(8), version=b"\x09\0")})


@hostile
def npy_cut_in_the_header():
    """An array alone whose header is cut."""
    return ONE[:30]


@hostile
def npy_alone_of_objects():
    """An array alone that runs a command."""
    stream = io.BytesIO()
    np.save(stream, np.array([Run()], dtype=object), allow_pickle=True)
    return stream.getvalue()


@hostile
def members_of_one_name():
    """Two arrays of one name: which one counts depends on the reader."""
    data = archive({"Q.npy": ONE, "q.npy": ONE})
    return data.replace(b"q.npy", b"Q.npy")


@hostile
def members_without_end():
    """Thirty thousand members."""
    return archive(dict.fromkeys((f"{i}.npy" for i in range(30_000)), b""))


@hostile
def members_encrypted():
    """The flag of an encrypted member."""
    data = bytearray(archive({"Q.npy": ONE}))
    data[6] |= 1
    data[data.index(b"PK\1\2") + 8] |= 1
    return bytes(data)


@hostile
def members_compressed_strangely():
    """A compression that NumPy never writes, good for a bomb."""
    return archive({"Q.npy": npy(described((2**21,))) + bytes(2**24)}, zipfile.ZIP_BZIP2)


@hostile
def sizes_of_two_minds():
    """A stored member whose two sizes differ."""
    data = bytearray(archive({"Q.npy": npy(described((100,)), bytes(8))}))
    at = data.index(b"PK\1\2")
    struct.pack_into("<I", data, at + 24, len(npy(described((100,)))) + 800)
    return bytes(data)


@hostile
def offsets_beyond_the_end():
    """A directory that points behind the file."""
    data = bytearray(archive({"Q.npy": ONE}))
    struct.pack_into("<I", data, data.index(b"PK\1\2") + 42, 2**31)
    return bytes(data)


@hostile
def names_of_two_minds():
    """A directory that calls a member otherwise than the member does."""
    data = archive({"Q.npy": ONE})
    at = data.index(b"PK\1\2")
    return data[:at] + data[at:].replace(b"Q.npy", b"K.npy")


@hostile
def checksum_wrong():
    """A number changed after it was written."""
    data = bytearray(archive({"Q.npy": ONE}))
    data[data.index(b"PK\1\2") - 1] ^= 1
    return bytes(data)


@hostile
def deflate_broken():
    """A compressed member whose stream makes no sense."""
    data = bytearray(archive({"Q.npy": npy(described((100,)), os.urandom(800))}, zipfile.ZIP_DEFLATED))
    data[200:300] = bytes(100)
    return bytes(data)


# --- safetensors ---


def safetensors(header, data=b"", length=None):
    """A file with this header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(begin, end, shape=(1,), dtype="F64"):
    """One entry of the header."""
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


@hostile
def tensors_header_beyond_the_end():
    """A header of 2⁶³ bytes."""
    return safetensors({}, length=2**63)


@hostile
def tensors_header_negative():
    """A header of 2⁶⁴ − 1 bytes."""
    return safetensors({}, length=2**64 - 1)


@hostile
def tensors_overlap():
    """Two arrays that share bytes."""
    return safetensors({"Q": tensor(0, 16, (2,)), "K": tensor(8, 24, (2,))}, bytes(24))


@hostile
def tensors_all_in_one_place():
    """Tens of thousands of arrays on the same bytes: a small file, a large sum."""
    return safetensors({f"{i}": tensor(0, 8) for i in range(30_000)}, bytes(8))


@hostile
def tensors_with_a_hole():
    """Bytes between arrays that nobody describes."""
    return safetensors({"Q": tensor(0, 8), "K": tensor(16, 24)}, bytes(24))


@hostile
def tensors_beyond_the_end():
    """An array that ends behind the file."""
    return safetensors({"Q": tensor(0, 2**40, (2**37,))}, bytes(8))


@hostile
def tensors_whose_size_overflows():
    """A shape whose product is zero in 64 bits."""
    return safetensors({"Q": tensor(0, 0, (2**32, 2**32))})


@hostile
def tensors_of_huge_sizes():
    """A size that no machine has a number for."""
    return safetensors({"Q": tensor(0, 8, (10**400,))}, bytes(8))


@hostile
def tensors_backwards():
    """An array that ends before it begins."""
    return safetensors({"Q": tensor(8, 0, (-1,))}, bytes(8))


@hostile
def tensors_deep():
    """A header that overflows the stack of a recursive parser."""
    return safetensors(b'{"Q":' + b"[" * 1_000_000)


@hostile
def tensors_twice():
    """Two arrays of one name."""
    entry = json.dumps(tensor(0, 8))
    return safetensors(f'{{"Q": {entry}, "Q": {entry}}}'.encode(), bytes(8))


@hostile
def tensors_with_a_header_of_ours_that_lies():
    """A header of a dump that describes other arrays."""
    metadata = {"attnctl.json": dump().replace('"data"', '"more"')}
    return safetensors({"__metadata__": metadata, "Q": tensor(0, 8)}, bytes(8))


# --- something else ---


@hostile
def nothing():
    """No bytes at all."""
    return b""


@hostile
def one_byte():
    """Hardly more."""
    return b"P"


@hostile
def gzip():
    """A compressed dump."""
    return compress(dump().encode())


@hostile
def noise():
    """Bytes by chance."""
    return np.random.RandomState(0).bytes(100_000)


@hostile
def zeros():
    """Bytes without content."""
    return bytes(100_000)
