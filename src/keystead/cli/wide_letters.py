"""Japanese and Korean lines on a terminal, which Rich would cut.

It breaks lines only at spaces, of which Japanese has few, and takes the number of letters for their width when it
removes spaces at the end of a line.
"""

import re
from typing import Final

# A line may end after any letter of Japanese, but not before a closing one.
_WORD: Final = re.compile(
    r"\s*[(「『]*(?:[\u3041-\u9fff\uff01-\uff60]|[^\s\u3041-\u9fff]+)[、。,)」』!?ー…ゃゅょっャュョッ]*\s*"
)
_SPACES_AT_THE_END: Final = re.compile(r"\s+$")


def wrap_wide_letters() -> None:
    """Make Rich wrap them in this process."""
    from rich import _wrap
    from rich.cells import cell_len
    from rich.text import Text

    def rstrip_end(self: Text, size: int) -> None:
        excess = cell_len(self.plain) - size
        spaces = _SPACES_AT_THE_END.search(self.plain)
        if excess > 0 and spaces is not None:
            self.right_crop(min(len(spaces[0]), excess))

    _wrap.re_word = _WORD
    Text.rstrip_end = rstrip_end  # type: ignore[method-assign]
