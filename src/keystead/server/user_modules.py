"""User modules, imported from the working directory."""

import os
import sys


def find_modules_here() -> None:
    """Allow imports from the current working directory, after all installed modules.

    Console scripts do not search it, but users who name a module expect it. It comes last, and only for them: a local
    `queue.py` must not replace the standard library's.
    """
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
