"""Hostile options: numbers that are none, sizes of another world, files that cannot be written."""

# ruff: noqa: E501  (a row a line)
from attack import OK, Attack

VALUES = {
    "--heads": ["2.0", "1e3", "-1", "0", "99999999999999999999", "0x2", "1_0", "", "nan"],
    "--kv-heads": ["0", "-2", "3", "99999999999999999999"],
    "--scale": ["nan", "inf", "-inf", "1e999", "one", ""],
    "--softcap": ["0", "-1", "nan", "inf", "1e-9999"],
    "--seed": ["-1", "4294967296", "1.5", "9" * 5000],
    "--window": ["-1", "1,2,3", "1.5", "a", ",", "", "1,", "-inf", "٣"],
    "--causal-offset": ["1.0", "99999999999999999999", "-99999999999999999999", "x"],
    "--positions": ["sine", "", "ROPE", "__class__"],
    "--theta": ["0", "nan", "5"],
    "--dtype": ["float128", "int8", "object"],
    "--d-model": ["1000000000", "99999999999999999999", "0", "-4", "3.5"],
    "--d-k": ["1000000000", "0", "-1"],
    "--d-v": ["1000000000", "99999999999999999999", "0"],
    "--step": ["", ",", "nothing", "scores;rm -rf", "\x1b[31m", "../../etc/passwd"],
    "--head": ["9", "-1", "1,", "1.0", "99999999999999999999", "x"],
    "--precision": ["99", "-1", "2.5", "99999999999999999999"],
    "--format": ["xml", "", "JSON", "\u202e"],
    "--max-memory": ["lots", "-1G", "0", "1e9", "nan", "9" * 5000, "1ZB"],
    "--edit": [
        "", "=", "X", "X=", "=1", "X=nan", "X=1e999", "X[9,9]=1", "X[0=1", "X]=1", "nothing=1", "X=@none.json",
        "X=@.", "X=@/dev/null", "X=__import__('os')", "X[" + "[" * 10_000 + "]=1", "X[99999999999999999999]=1",
        'X["\\ud800"]=1', "X[\x1b]=1", "attention_weights=inf", "X=@good.json=@good.json",
    ],
    "--file": ["", "none.txt", "/dev/null", "good.npz"],
    "-c": ["", "none.yaml", ".", "/dev/null/x", "good.npz", "\x1b[31m.yaml", "x" * 5000],
    "-o": [
        "", ".", "..", "x", "x.docx", ".json", "missing/x.json", "good.json/x.json", "/dev/full", "/sys/x.json",
        "/proc/x.json", "x" * 300 + ".json", "\x1b[31m.gif", "folder.json", "loop.json", "x.json\n",
    ],
}  # fmt: skip

OPTIONS = {
    f"{flag.strip('-').replace('-', '_')}_{number}": Attack(
        f"{flag} {value[:40]!a}",
        ("run", "I love AI", f"{flag}={value}" if flag.startswith("--") else f"{flag}{value}"),
    )
    for flag, values in VALUES.items()
    for number, value in enumerate(values)
}

CELLS = [
    "", "X", "[", "X[", "X[]", "X[0", "X[0,0,0]", "X[99,0]", "X[99999999999999999999,0]", "X[nobody,0]", 'X["I]', 'X["\\x"]',
    "X[I#0,0]", "X[I#9,0]", "X[I#" + "9" * 5000 + ",0]", "nothing[0]", "X[0,0]=1", "X[\u202e,0]", "X[[red],0]", "X[\x1b[31m,0]",
    "X" + "[" * 50_000, "X[" + "0," * 50_000 + "0]", "X[0.5,0]", "__class__[0]", "X[:,:]", "-1", "X[" + "\\" * 50_000 + '"]',
]  # fmt: skip
OPTIONS |= {
    f"cell_{number}": Attack(f"the cell {cell[:40]!a}", ("explain", "good.json", "--", cell))
    for number, cell in enumerate(CELLS)
}

OTHERS = {
    "no_command": (("nonsense",), "No such command"),
    "a_command_in_markup": (("[red]x[/red]",), "[red]x[/red]"),
    "a_command_that_steers": (("\x1b[31m\u202e",), "\\x1b[31m\\u202e"),
    "an_option_that_steers": (("run", "I", "--\x1b[31m"), "\\x1b[31m"),
    "an_empty_argument": (("",), ""),
    "output_is_the_config": (("run", "-c", "good.yaml", "-o", "good.yaml"), "good.yaml"),
    "output_is_the_input": (("show", "good.json", "-o", "good.json"), "it is what this command reads"),
    "output_is_the_input_in_other_words": (("show", "good.json", "-o", "./folder.json/../good.json"), "it is good.json, which this command reads"),
    "output_is_a_link_to_the_input": (("show", "good.json", "-o", "link.json"), "it is good.json, which this command reads"),
    "output_is_the_arrays": (("attend", "good.npz", "-o", "good.npz"), "it is what"),
    "init_over_its_config": (("config", "init", "-c", "good.yaml", "-o", "good.yaml"), "it is what"),
    "one_good_and_one_bad_output": (("run", "I love AI", "-o", "x.json", "-o", "x.docx"), "x.docx"),
    "both_from_stdin": (("diff", "-", "-"), "stdin"),
    "a_negative_depth": (("explain", "good.json", "X[0,0]", "--depth", "-1"), "--depth"),
    "a_tolerance_of_nan": (("diff", "good.json", "good.json", "--rtol", "nan"), "--rtol"),
    "a_negative_tolerance": (("check", "good.json", "--atol", "-1"), "--atol"),
    "many_decimals": (("check", "good.json", "--decimals", "999"), "--decimals"),
    "nothing_compared": (("diff", "good.json", "good.json", "--step", "nothing"), "nothing"),
    "a_name_that_is_none": (("attend", "good.npz", "--name", "=Q"), "THEIRS=OURS"),
    "two_names_for_one": (("attend", "good.npz", "--name", "Q=K"), "--name"),
    "statistics_as_markdown": (("stats", "good.json", "--format", "markdown"), "markdown"),
    "a_folder_for_a_dump": (("show", "."), "a folder without a file of arrays"),
    "a_device_for_a_dump": (("show", "/dev/null"), "empty"),
    "a_dump_that_is_not_there": (("show", "none\x1b[31m.json"), "\\x1b[31m"),
    "a_name_too_long": (("show", "x" * 5000 + ".json"), "too long"),
    "a_link_to_itself": (("show", "loop.json"), "symbolic links"),
}  # fmt: skip
OPTIONS |= {name: Attack(name.replace("_", " "), args, says=says) for name, (args, says) in OTHERS.items()}
OPTIONS |= {
    "window_without_end": Attack(
        "a limit beyond any integer",
        ("run", "I love AI", "--brief", "--window", "99999999999999999999"),
        OK,
    ),
    "window_open_twice": Attack(
        "no limit at all", ("run", "I love AI", "--brief", "--window", "inf,inf"), OK
    ),
    "a_columns_of_nonsense": Attack(
        "help in markup", ("run", "[bold]", "--brief", "--precision", "17"), OK
    ),
    "ten_thousand_steps": Attack("a list of names without end", ("run", "I", "--step", "X," * 10_000), OK),
    "ten_thousand_edits": Attack("edits without end", ("run", "I", "--brief", *["--edit=X+=1"] * 2000), OK),
}
