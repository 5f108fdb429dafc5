"""Which pages have changed since their pictures in docs/pictures were taken: `python scripts/pictures.py`.

With `--record`, after new ones were taken and looked at, it writes down what they show.
"""

from __future__ import annotations

import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PICTURES: Final = ROOT / "docs" / "pictures"
RECORD: Final = ROOT / "scripts" / "pictures.json"
# By the first word of a picture: the package whose pages it shows.
PACKAGES: Final = {
    "console": "console",
    "membership": "kits/membership",
    "teamwork": "kits/teamwork",
    "widgets": "kits/widgets",
}
_SHOWN: Final = {".html", ".css", ".js"}


def digests() -> dict[str, str]:
    """The digest of the templates, styles and scripts that make each group of pictures."""
    found = {}
    for word, package in PACKAGES.items():
        files = sorted(path for path in (ROOT / "src" / "keystead" / package).rglob("*") if path.suffix in _SHOWN)
        found[word] = sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()
    return found


def changed() -> list[str]:
    """The groups of pictures that may show what is no longer there."""
    recorded = json.loads(RECORD.read_text())
    return [word for word, digest in digests().items() if recorded.get(word) != digest]


def main() -> None:
    if "--record" in sys.argv[1:]:
        RECORD.write_text(json.dumps(digests(), indent=2) + "\n")
    elif stale := changed():
        sys.exit(f"take and look at these pictures again, then run with --record: {', '.join(stale)}")


if __name__ == "__main__":
    main()
