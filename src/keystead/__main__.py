"""`python -m keystead`: the `keystead` command of this very interpreter, wherever its scripts were installed."""

from keystead.cli import main

main()
