"""Words that several commands say."""

import json
from typing import Any


def counted(count: int, one: str, many: str = "") -> str:
    """`1 key`, `1,000 keys`"""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def json_text(data: Any, indent: int | None = None) -> str:
    """JSON for programs. Terminal control characters are escaped, because people look at it too."""
    text = json.dumps(data, indent=indent, ensure_ascii=False)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
