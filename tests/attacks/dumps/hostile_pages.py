"""Hostile pages: descriptions and blocks that lie, and text that no page of ours has."""

import json
import zlib
from base64 import b64encode

from hostile import hostile
from hostile_json import dump

ONE = b64encode(zlib.compress(bytes(16)))


def page(description, *blocks):
    """A page with this description and these blocks."""
    text = description if isinstance(description, str) else json.dumps(description)
    told = (
        f'<!doctype html>\n<script type="application/json" id="attnctl-report">{text}</script>\n'.encode()
    )
    start, end = b'<script type="application/octet-stream;base64" id="b%d">', b"</script>\n"
    return told + b"".join(start % number + block + end for number, block in enumerate(blocks))


def described(*, shape=(1, 2), dtype="float64", number=0, schema="attnctl/report/1", **more):
    """The description of a page with one array."""
    header = json.loads(dump())
    for step in header["steps"].values():
        step.pop("data")
        step |= {"shape": list(shape), "dtype": dtype}
    trace = {"dump": header, "blocks": dict.fromkeys(header["steps"], number)}
    return {"schema": schema, "blocks": [{"dtype": dtype, "shape": list(shape)}], "traces": [trace]} | more


@hostile
def page_of_somebody_else():
    """A page that is none of ours."""
    return "<!doctype html>\n<title>Attention</title>"


@hostile
def page_without_end():
    """A description that never ends."""
    return page(described())[:-20]


@hostile
def page_bomb():
    """A block that inflates to a gigabyte, described as such."""
    packed = zlib.compress(bytes(1 << 26), 9)
    return page(described(shape=(1 << 27, 1)), b64encode(packed))


@hostile
def page_bomb_in_secret():
    """A block that inflates to far more than it says."""
    return page(described(), b64encode(zlib.compress(bytes(1 << 26), 9)))


@hostile
def page_of_a_terabyte():
    """An array that no machine holds, in a block of sixteen bytes."""
    return page(described(shape=(1 << 20, 1 << 20)), ONE)


@hostile
def page_shape_beyond_integers():
    """A shape whose product is no number of a machine."""
    return page(described(shape=(1 << 62, 1 << 62)), ONE)


@hostile
def page_shape_negative():
    """Sizes below 0."""
    return page(described(shape=(-1, -2)), ONE)


@hostile
def page_of_objects():
    """Numbers of a type that would be unpickled."""
    return page(described(dtype="object"), ONE)


@hostile
def page_block_missing():
    """A block that is described and not there."""
    return page(described())


@hostile
def page_block_number():
    """A step in a block that nobody describes."""
    return page(described(number=7), ONE)


@hostile
def page_block_not_deflated():
    """A block of letters."""
    return page(described(), b"QUJDREVGR0g=")


@hostile
def page_block_not_base64():
    """A block whose base64 is cut off."""
    return page(described(), ONE[:-3])


@hostile
def page_block_too_short():
    """A block with fewer numbers than it says."""
    return page(described(shape=(1, 3)), ONE)


@hostile
def page_of_a_later_schema():
    """A page of a schema that nobody knows yet."""
    return page(described(schema="attnctl/report/9\x1b[31m"), ONE)


@hostile
def page_with_deep_description():
    """A description nested very deeply."""
    return page("[" * 200_000)


@hostile
def page_traces_a_word():
    """Traces that are none."""
    return page(described(traces="all"), ONE)


@hostile
def page_without_traces():
    """A page that holds nothing."""
    return page(described(traces=[]), ONE)


@hostile
def page_dump_a_list():
    """A trace whose dump is a list."""
    return page(described(traces=[{"dump": [], "blocks": {}}]), ONE)


@hostile
def page_blocks_twice():
    """Ten thousand steps in one block: a small file, a large sum."""
    zeros = b64encode(zlib.compress(bytes(1 << 22), 9))
    header = json.loads(dump())
    step = {**next(iter(header["steps"].values())), "shape": [1 << 19, 1]}
    step.pop("data", None)
    names = [f"s{number}" for number in range(10_000)]
    header["steps"] = {name: {**step, "inputs": ["nowhere"]} for name in names}
    traces = [{"dump": header, "blocks": dict.fromkeys(names, 0)}]
    return page(described(shape=(1 << 19, 1), traces=traces), zeros)
