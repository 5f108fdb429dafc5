"""`manage.py keystead check|doctor|show|docs`: the `keystead` command for the keyspaces and stores of the project."""

from __future__ import annotations

import runpy
import sys
from argparse import REMAINDER
from contextlib import redirect_stdout
from itertools import chain
from typing import Any, ClassVar, Final

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from keystead.errors import KeysteadError
from keystead.integrations.django.app_settings import store_url
from keystead.integrations.django.project_keys import StoredKeyspaces, stored_keyspaces

COMMANDS: Final = ("check", "doctor", "show", "docs")


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    help = "Check the keyspaces of this project, examine and show its stores, or print its key document."
    requires_system_checks: ClassVar[list[str]] = []
    _called_from_command_line = False

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("command", choices=COMMANDS)
        parser.add_argument("options", nargs=REMAINDER, help="options of `keystead`, such as doctor --fix")

    def handle(self, command: str, options: list[str], **_: Any) -> None:
        """Raises CommandError if the command fails; from the command line, it ends with its exit code."""
        try:
            groups = stored_keyspaces()
            if command in ("doctor", "show") and any(group.store is None for group in groups):
                store_url()
        except (ImproperlyConfigured, KeysteadError) as error:
            raise CommandError(str(error)) from error
        if not groups:
            raise CommandError("this project has no keyspaces: declare one in the keys.py of an application")
        with redirect_stdout(getattr(self.stdout, "_out", self.stdout)):
            codes = [_run(command, *arguments) for arguments in _arguments(command, options, groups)]
        if max(codes) and self._called_from_command_line:
            sys.exit(max(codes))
        if max(codes):
            raise CommandError(f"keystead {command}: exit code {max(codes)}", returncode=max(codes))


def _arguments(command: str, options: list[str], groups: list[StoredKeyspaces]) -> list[list[str]]:
    """The arguments of each call: one for each store, because all of its keys are examined together."""
    if command == "docs":
        named = [["--keyspace", name] for group in groups for name in group.names()]
        # Without --out it prints one document at a time.
        calls = [list(chain.from_iterable(named))] if "--out" in options else named
        return [[*options, *keyspaces] for keyspaces in calls]
    if command == "show":  # FAMILY is only in some of them
        groups = [one for one in groups if any(map(one.has_family, options))] or groups
    return [[*options, *_named(group), *_where(group)] for group in groups]


def _named(group: StoredKeyspaces) -> list[str]:
    return [part for one in group.names() for part in ("--keyspace", one)]


def _where(group: StoredKeyspaces) -> list[str]:
    return [] if group.store is None else ["--store", group.store]


def _run(*arguments: str) -> int:
    """Run the `keystead` command, as `python -m keystead` does. Returns its exit code."""
    before = sys.argv
    sys.argv = ["keystead", *arguments]
    try:
        runpy.run_module("keystead", run_name="__main__")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        sys.argv = before
    return 0
