"""Draw the picture of the explorer that the README shows: python tests/explore/picture.py"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(Path(__file__).parent))

from driven import drive, of_sentence  # noqa: E402

PICTURE = ROOT / "samples" / "pictures" / "explore.svg"


async def look(app, pilot):
    await pilot.press("down", "right")
    drawn = re.sub(r"@font-face \{.*?\}", "", app.export_screenshot(title=" "), flags=re.DOTALL)
    PICTURE.write_text(drawn.replace("Fira Code", "DejaVu Sans Mono"))  # no font is fetched


if __name__ == "__main__":
    drive(of_sentence(heads=2), look, size=(100, 22))
