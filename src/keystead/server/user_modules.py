"""Programs of the user, found in the folder that Keystead was started in."""

import os
import sys


def find_modules_here() -> None:
    """Let modules in the working directory be imported, where nothing installed has their name.

    A console script does not look there, and whoever names a module of their own expects it. It is looked at last, and
    only for them: a `queue.py` that lies there must not run in the place of the standard library's. It is the folder of
    this moment, whatever the working directory is later.
    """
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
