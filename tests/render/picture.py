"""Draw the picture of the first screen that the README shows: python tests/render/picture.py"""

import io
import re
from pathlib import Path

from render_golden import first, show
from rich.console import Console

PICTURE = Path(__file__).parent.parent.parent / "samples" / "pictures" / "first.svg"

if __name__ == "__main__":
    console = Console(
        file=io.StringIO(), record=True, force_terminal=True, width=100, color_system="truecolor"
    )
    console.print('$ attnctl run "I love AI" --heads 2', highlight=False)
    show(first(), console)
    drawn = re.sub(
        r"@font-face \{.*?\}", "", console.export_svg(title=" ", unique_id="first"), flags=re.DOTALL
    )
    PICTURE.write_text(drawn.replace("Fira Code", "DejaVu Sans Mono"))  # no font is fetched
