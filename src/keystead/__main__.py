"""The `keystead` command, also as `python -m keystead`: with this very interpreter, wherever its scripts are."""

import sys

from keystead.errors import MissingExtra
from keystead.extras import from_extra


def main() -> None:
    """Run the command line. Exit code 2 where its packages are not installed."""
    try:
        with from_extra("cli", "the keystead command"):
            from keystead.cli import main as run
    except MissingExtra as missing:
        print(f"keystead: {missing}", file=sys.stderr)
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
