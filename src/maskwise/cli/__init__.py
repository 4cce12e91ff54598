"""The command line: each command is a few lines that call the library; heavy imports wait until they are needed."""

from typing import Annotated, Any

import typer
import typer.core

from maskwise import __version__
from maskwise.cli.advising import advise
from maskwise.cli.checkpoints import convert, export, models, verify
from maskwise.cli.decoding import generate, score
from maskwise.cli.fields import with_kinds
from maskwise.cli.measuring import ListsProbes, compare, cures, diagnose, report, run_card, toy
from maskwise.cli.playing import studio
from maskwise.cli.renamed import CommandWithOldNames, in_words
from maskwise.cli.training import train, tune
from maskwise.errors import UserError
from maskwise.interrupts import was_interrupted
from maskwise.terminal import one_line

# What is raised for a wrong command line: typer names it under its own roof or click's, depending on the version.
Misuse: Any = typer.BadParameter.__base__


class _Commands(typer.core.TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        """A user's mistake is one line on standard error and exit status 2, never a traceback."""
        try:
            return super().invoke(ctx)
        except UserError as problem:
            typer.echo(f"maskwise: {one_line(problem)}", err=True)
            raise typer.Exit(2) from None
        except Misuse as problem:
            where = (problem.ctx or ctx).command_path
            typer.echo(f"maskwise: {one_line(in_words(problem.format_message()))} (see {where} --help)", err=True)
            raise typer.Exit(2) from None
        except BaseException as problem:
            if not was_interrupted(problem):
                raise
            reason = str(problem) if isinstance(problem, KeyboardInterrupt) else ""
            typer.echo(one_line("; ".join(filter(None, ["maskwise: interrupted", reason]))), err=True)
            raise typer.Exit(2) from None


app = typer.Typer(
    cls=_Commands,
    help="Diagnose, tune and decode masked diffusion language models.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
COMMANDS = (
    models, convert, verify, diagnose, report, run_card, advise, generate, score, compare, export, train, tune, toy,
    cures, studio,
)  # fmt: skip
for command in COMMANDS:
    app.command(cls=ListsProbes if command is diagnose else CommandWithOldNames)(with_kinds(command))


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"maskwise {__version__}")
        raise typer.Exit()


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
