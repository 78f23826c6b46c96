"""The file of a program: its characters as they are, line ends and all, and how it is written again."""

from __future__ import annotations

import difflib
import io
import tokenize

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.files import open_own, refuse_os_errors
from attnctl.store.files import replacing
from attnctl.verbs.check.mend.text import lines_of


@dataclass(frozen=True)
class ProgramFile:
    path: str
    text: str
    encoding: str
    data: bytes

    def write(self, text: str) -> None:
        """Put another text there, in the same encoding, all at once.

        Raises AttnError where it cannot be, or where the file is no longer what was read.
        """
        with refuse_os_errors(f"{self.path}: cannot be written"):
            if read_file(self.path).data != self.data:
                raise AttnError(f"{self.path}: it was changed meanwhile, and is left as it is")
            with replacing(self.path) as stream:
                stream.write(text.encode(self.encoding))

    def diff_to(self, text: str, shown: str) -> str:
        """What changes, as `patch` takes it."""
        out = []
        for line in difflib.unified_diff(lines_of(self.text), lines_of(text), shown, shown, n=1):
            out.append(line)
            if not line.endswith(("\n", "\r")):
                out.append("\n\\ No newline at end of file\n")
        return "".join(out)


def read_file(path: str) -> ProgramFile:
    """A file of Python, in the encoding that its first lines name."""
    with refuse_os_errors(f"{path}: cannot be read"), open_own(path) as stream:
        data = stream.read()
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return ProgramFile(path=path, text=data.decode(encoding), encoding=encoding, data=data)
