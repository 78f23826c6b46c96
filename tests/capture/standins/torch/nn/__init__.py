"""Stands for torch where it is not installed: modules that know their children, on NumPy."""


class Module:
    def named_modules(self, path=""):
        yield path, self
        for name, child in vars(self).items():
            children = enumerate(child) if isinstance(child, list) else [("", child)]
            for number, inner in children:
                if isinstance(inner, Module):
                    own = ".".join(filter(None, [path, name, str(number)]))
                    yield from inner.named_modules(own)

    def __call__(self, *args):
        return self.forward(*args)
