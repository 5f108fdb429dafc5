"""The `keystead` command, also as `python -m keystead`, which needs no script on PATH."""

import sys

from keystead.errors import MissingExtra
from keystead.extras import from_extra


def main() -> None:
    """Run the command line. The exit code is 2 if its packages are not installed."""
    try:
        with from_extra("cli", "the keystead command"):
            from keystead.cli import main as run
    except MissingExtra as missing:
        print(f"keystead: {missing}", file=sys.stderr)
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
