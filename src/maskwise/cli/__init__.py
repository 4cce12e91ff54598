"""The command line: each command is a few lines that call the library; heavy imports wait until they are needed."""

from collections.abc import Callable
from typing import Annotated, Any

import typer
import typer.core

from maskwise.cli.advising import advise
from maskwise.cli.checkpoints import convert, export, models, verify
from maskwise.cli.decoding import generate, score
from maskwise.cli.hints import Command, in_words
from maskwise.cli.measuring import ListsProbes, compare, diagnose, report, toy
from maskwise.cli.playing import studio
from maskwise.cli.training import train, tune
from maskwise.support.errors import UserError, cannot_open
from maskwise.support.interrupts import was_interrupted
from maskwise.support.option_fields import with_kinds
from maskwise.support.terminal import one_line
from maskwise.support.version import __version__

# What is raised for a wrong command line: typer names it under its own roof or click's, depending on the version.
Misuse: Any = typer.BadParameter.__base__


class _Commands(typer.core.TyperGroup):
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The commands that people use first, then the others."""
        listed = [(name, self.commands[name].get_short_help_str(60)) for name in self.list_commands(ctx)]
        for title, rows in (("Commands", listed[:FIRST]), ("More commands", listed[FIRST:])):
            with formatter.section(title):
                formatter.write_dl(rows)

    def invoke(self, ctx: Any) -> Any:
        """A user's mistake is one line on standard error and exit status 2, never a traceback."""
        try:
            return super().invoke(ctx)
        except BaseException as problem:
            line = _refusal(problem, ctx)
            if line is None:
                raise
            typer.echo(f"maskwise: {one_line(line)}", err=True)
            raise typer.Exit(2) from None


def _refusal(problem: BaseException, ctx: Any) -> str | None:
    """What is wrong, in one line; None of an error of ours."""
    if isinstance(problem, UserError):
        return problem.as_typed
    if isinstance(problem, Misuse):
        where = problem.ctx or ctx
        return f"{in_words(problem.format_message(), where.info_name)} (see {where.command_path} --help)"
    if isinstance(problem, OSError):
        return None if problem.filename is None else cannot_open(problem)
    if type(problem).__name__ == "PanicException":  # of the tokenizers library, in Rust: no Exception
        return f"the tokenizer fails on this text ({str(problem)[:200]}): use another model"
    if not was_interrupted(problem):
        return None
    return "; ".join(filter(None, ["interrupted", str(problem) if isinstance(problem, KeyboardInterrupt) else ""]))


app = typer.Typer(
    cls=_Commands,
    help="Diagnose, tune and decode masked diffusion language models.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
# In the list of commands a line of 80 columns has room for so much; each command's own help says more.
COMMANDS: dict[Callable[..., None], str] = {
    diagnose: "Measure context locality and sensitivity to appended masks.",
    generate: "Continue prompts, or fill in the masks inside them.",
    advise: "Find the settings to decode with, from your own questions.",
    tune: "Tune a model to ignore appended masks.",
    compare: "Compare models, for example before and after tuning.",
    models: "List the models: embedded, published, or of a folder.",
    score: "Compute log-likelihoods of given answers, in nats.",
    report: "Draw the report again from run folders.",
    convert: "Turn an autoregressive checkpoint into a masked diffusion one.",
    train: "Train a masked diffusion model on documents.",
    export: "Merge an adapter into its checkpoint.",
    verify: "Compare our classes with the checkpoint's own code.",
    toy: "Show how parallel decoding breaks two dependent tokens.",
    studio: "Open a page to try models by hand.",
}
FIRST = 6  # commands that the help lists first
for command, short_help in COMMANDS.items():
    cls = ListsProbes if command is diagnose else Command
    app.command(cls=cls, short_help=short_help)(with_kinds(command))


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
