"""Finding the functions that are attention in the modules of a program, now and as it imports them."""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack, suppress
from operator import attrgetter
from types import ModuleType
from typing import Any

from attnctl.verbs.capture.functions import EAGER, LIBRARIES, OWN, REGISTERED, Function
from attnctl.verbs.capture.recorder import CallRecorder

OF_MODELS = re.compile(r"transformers\.models\..*\.modeling_\w+")


class Finder:
    """Stands before the finders of modules, and replaces what is watched in a module that has been made."""

    def __init__(self, recorder: CallRecorder) -> None:
        self.recorder, self.functions, self.undo = recorder, dict(LIBRARIES), ExitStack()
        self.made: dict[Any, Any] = {}
        for text in recorder.chosen.functions:
            module, _, name = text.partition(":")
            self.functions[module] = self.functions.get(module, {}) | {name: OWN}

    def __enter__(self) -> None:
        """Begin with modules that have been imported, and with copies of functions under other names."""
        for name in [name for name in sys.modules if self.watched_in(name) is not None]:
            self.replace(sys.modules[name])
        made = {id(function): watched for function, watched in self.made.items()}
        for module in list(sys.modules.values()):
            for name, value in list(getattr(module, "__dict__", {}).items()):
                if id(value) in made:
                    self.put(module, name, made[id(value)])
        sys.meta_path.insert(0, self)

    def __exit__(self, *error: object) -> None:
        sys.meta_path.remove(self)
        self.undo.close()
        self.recorder.close()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if self.watched_in(name) is None:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            make = spec.loader.exec_module

            def make_watched(module: ModuleType) -> None:
                make(module)
                self.replace(module)

            spec.loader.exec_module = make_watched  # type: ignore[method-assign]
        return spec

    def watched_in(self, module: str) -> dict[str, Function] | None:
        eager = {"eager_attention_forward": EAGER} if OF_MODELS.fullmatch(module) else None
        return self.functions.get(module, eager)

    def replace(self, module: Any) -> None:
        """Put what records in the place of functions; and again, where a program puts others there."""
        known = self.watched_in(module.__name__) or {}
        for name, row in known.items():
            path, _, last = name.rpartition(".")
            with suppress(AttributeError):  # another version of a library
                owner = attrgetter(path)(module) if path else module
                self.put(owner, last, self.watch(getattr(owner, last), last, row))
                self.recorder.lacking.discard(f"{module.__name__}:{name}")
        if module.__name__ == "torch.backends.mha":  # the fast path of encoder layers calls no function
            self.put(module, "_is_fastpath_enabled", False)
        elif module.__name__ == "torch.jit._builtins":  # by which torch.jit.script knows functions
            find = module._find_builtin  # noqa: SLF001
            self.put(module, "_find_builtin", lambda own: find(getattr(own, "__wrapped__", own)))
        elif module.__name__ == "transformers.modeling_utils":
            registry = module.AttentionInterface
            self.put(registry, "__getitem__", self.watch_given(registry.__getitem__))
        elif type(module) is ModuleType:

            def put(module: Any, name: str, value: Any) -> None:
                row = known.get(name) if callable(value) else None
                ModuleType.__setattr__(module, name, self.watch(value, name, row) if row else value)

            self.put(module, "__class__", type("Watching", (ModuleType,), {"__setattr__": put}))

    def put(self, owner: Any, name: str, value: Any) -> None:
        self.undo.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, value)

    def watch(self, function: Any, name: str, row: Function) -> Any:
        if not hasattr(function, "watches"):
            self.made[function] = self.recorder.watch(function, name, row)
        return self.made.get(function, function)

    def watch_given(self, give: Any) -> Any:
        """What gives transformers' attention functions by name; some call one that is known by itself."""

        def give_watched(registry: Any, name: str) -> Any:
            function = give(registry, name)
            if re.search("flash|flex|paged", name):
                return function
            return self.watch(function, getattr(function, "__name__", name), REGISTERED)

        return give_watched
