"""Hostile archives: bombs, pickles, directories that lie."""

import io
import os
import pickle
import struct
import zipfile

import numpy as np
from archives import ONE, archive, bomb, described, npy
from hostile import hostile


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
def zip_bomb_in_a_header_of_no_length():
    """The same in a header that says it has no length, which a reader may take for all there is."""
    return bomb("Q.npy", b"\x93NUMPY\1\0\0\0", 300)


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
