"""Groups of commands whose modules are imported when a command runs, and the handling of their
errors.

`strandline --help` and `strandline status` must not wait for the S3 client, RocksDB, the Kafka
protocol or Spark. So a table repeats the first line of each command's help (a test compares them).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from kafka_formats.errors import StrandlineError
from rlm.control.process_end import output_is_closed
from strandline.cli.exit_codes import ExitCode, exit_code_for

Commands = Mapping[str, tuple[str, str]]
"""Name -> (module in the package and its attribute, first line of its help)."""


def lazy_commands(package: str, commands: Commands) -> type[TyperGroup]:
    """A group for `typer.Typer(cls=...)` that runs `commands` of `package`.

    Commands return their exit code; a StrandlineError becomes one line and the exit code of its
    kind. A command whose output is closed ends silently.
    """

    class LazyCommands(TyperGroup):
        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            """Replace the placeholder from the table by the real command when it runs."""
            name, command, rest = super().resolve_command(ctx, args)
            if name is not None and name in commands:
                return name, load_command(package, commands, name), rest
            return name, command, rest

        def invoke(self, ctx: Any) -> None:
            try:
                code = self._invoke(ctx)
            except BrokenPipeError:  # Typer would treat each of them as closed output
                if not output_is_closed():
                    sys.excepthook(*sys.exc_info())
                    raise typer.Exit(ExitCode.INTERNAL) from None
                code = ExitCode.OUTPUT_CLOSED
            raise typer.Exit(int(code or ExitCode.OK))

        def _invoke(self, ctx: Any) -> Any:
            try:
                return super().invoke(ctx)
            except typer.BadParameter as error:  # Pydantic's prefix does not help a user
                error.message = error.message.removeprefix("Value error, ")
                raise
            except StrandlineError as error:
                _print_error(str(error))
                return exit_code_for(error)
            except KeyboardInterrupt:
                _print_error("interrupted")
                return ExitCode.INTERRUPTED

    return LazyCommands


def exit_status(app: typer.Typer, prog_name: str | None = None) -> int:
    """Run the command line of this process and return its exit code.

    Any other error is shown as Python shows it, and is INTERNAL.
    """
    try:
        app(prog_name=prog_name)
    except SystemExit as ended:  # Typer never returns otherwise
        return ended.code if isinstance(ended.code, int) else ExitCode.INTERNAL
    except BaseException:  # noqa: BLE001
        sys.excepthook(*sys.exc_info())
    return ExitCode.INTERNAL


def load_command(package: str, commands: Commands, name: str) -> Any:
    """The real command of this name. Imports its module; the type is private to Typer."""
    module, _, attribute = commands[name][0].partition(":")
    with _without_collections():
        found = getattr(import_module(f"{package}.{module}"), attribute)
    if isinstance(found, typer.Typer):
        return typer.main.get_command(found)
    alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    alone.command(name)(found)
    return typer.main.get_command(alone)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Disable garbage collection: imports leave little garbage, and collections take an eighth of a
    node's start.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def add_lines_of_help(app: typer.Typer, commands: Commands, *, panel: str) -> None:
    """Register the first line of help of commands whose modules are not imported yet."""
    for name, (_, first_line) in commands.items():
        app.command(name, help=first_line, rich_help_panel=panel)(_only_a_line_of_help)


def _only_a_line_of_help() -> None:
    raise AssertionError("resolve_command replaces this placeholder")


def _print_error(message: str) -> None:
    from strandline.cli.output import print_error  # Rich is slow to import, and rarely needed

    print_error(message)
