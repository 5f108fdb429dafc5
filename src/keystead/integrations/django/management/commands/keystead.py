"""`manage.py keystead check|doctor|show|docs`: the `keystead` command for the keyspaces and stores of the project."""

from __future__ import annotations

import runpy
import sys
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError

from keystead.integrations.django.project_keys import command_stores, command_targets

COMMANDS: Final = ("check", "doctor", "show", "docs")


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    help = "Check the keyspaces of this project, examine and show its stores, or print its key document."

    def run_from_argv(self, argv: list[str]) -> None:
        """Pass everything after the name of the command on: `manage.py keystead doctor --fix`."""
        name, *options = argv[2:] or [""]
        if name not in COMMANDS:
            self.stderr.write(f"usage: {argv[0]} keystead {{{','.join(COMMANDS)}}} [options of `keystead`]")
            sys.exit(0 if name in ("-h", "--help") else 2)
        self.handle(name, options)

    def handle(self, name: str, options: list[str], **_: Any) -> None:
        targets, stores = command_targets(), command_stores()
        if not targets:
            raise CommandError("this project has no keyspaces: declare one in the keys.py of an application")
        if name == "docs" and "--out" not in options:  # it prints one document at a time
            for one in targets:
                _run("docs", *options, one)
            return
        named = [part for one in targets for part in ("--keyspace", one)] if name == "show" else targets
        where = [] if name == "docs" else [part for url in stores for part in ("--store", url)]
        _run(name, *options, *named, *where)


def _run(*arguments: str) -> None:
    """Run the `keystead` command, as `python -m keystead` does; returns if it succeeds."""
    sys.argv = ["keystead", *arguments]
    try:
        runpy.run_module("keystead", run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise
