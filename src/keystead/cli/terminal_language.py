"""The language of the command line, and texts in it: `say("Hello, {name}", name="Ada")` as in `Speaker`.

Nothing is read before the first text that is not in English.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from keystead.catalogue import Catalogue, Speaker, language_of_environment

_CATALOGUE: Final = Catalogue(Path(__file__).parent)


def speaker(*catalogues: Catalogue) -> Speaker:
    """Texts of the command line and of further catalogues, in the language of the environment."""
    return Speaker(language_of_environment(os.environ), _CATALOGUE, *catalogues)


def say(text: str, /, **values: object) -> str:
    return speaker()(text, **values)


def plural(one: str, many: str, count: int) -> str:
    return speaker().plural(one, many, count)
