"""Hostile dumps in JSON, and files that are nothing at all."""

import json
from gzip import compress

import numpy as np
from hostile import hostile


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
    return '{"schema": "attnctl/base/trace/\\u001b[2J\\n9", "steps": {}}'


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
