"""The `keystead` command."""

from typing import Annotated

import typer

import keystead
from keystead.cli.check import check
from keystead.cli.delete import delete
from keystead.cli.docs import docs
from keystead.cli.doctor import doctor
from keystead.cli.erase import erase
from keystead.cli.export import export
from keystead.cli.flags import NO_VALUE, Command, Group
from keystead.cli.secrets import secrets
from keystead.cli.serve import serve
from keystead.cli.sessions import sessions
from keystead.cli.show import show

__all__ = ["main"]

app = typer.Typer(
    name="keystead",
    cls=Group,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
)
for command in (serve, check, doctor, docs, export, show, delete, erase):
    app.command(cls=Command)(command)
app.add_typer(sessions)
app.add_typer(secrets)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"keystead {keystead.__version__}")
        raise typer.Exit


@app.callback()
def _keystead(
    version: Annotated[
        bool,
        typer.Option(
            "--version", metavar=NO_VALUE, callback=_print_version, is_eager=True, help="Show the version and leave."
        ),
    ] = False,
) -> None:
    """Key documents that run.

    Start with [bold]keystead serve[/bold], then open http://127.0.0.1:8700.
    """


def main() -> None:
    """Run the command line: exit code 0, 1 when something failed, 2 when it was asked wrongly."""
    app()
