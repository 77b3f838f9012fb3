"""`@asks_node`: commands that query a running node and show its answer as a table or as JSON."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from strandline.cli.client import DEFAULT_URL, NodeClient, TokenFileOption, UrlOption
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import print_json

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
_OPTIONS = (
    ("url", UrlOption, DEFAULT_URL),
    ("token_file", TokenFileOption, None),
    ("json", JsonOption, False),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a command: `document` is printed with `--json`, else `show` is called."""

    document: Any
    show: Callable[[], None]
    code: ExitCode = ExitCode.OK


def asks_node(command: Callable[..., Answer]) -> Callable[..., int]:
    """Add `--url`, `--token-file` and `--json` to a command that takes a `NodeClient` first."""

    @functools.wraps(command)
    def run(*, url: str, token_file: Path | None, json: bool, **options: Any) -> int:
        with NodeClient(url, token_file) as client:
            answer = command(client, **options)
        if json:
            print_json(answer.document)
        else:
            answer.show()
        return answer.code

    declare(run, command, _OPTIONS)
    return run


def declare(
    run: Callable[..., int], command: Callable[..., Any], more: Iterable[tuple[str, Any, Any]]
) -> None:
    """Give `run` a signature for Typer: the parameters of `command` except its first, and `more`,
    each a name, type and default.
    """
    declared = inspect.signature(command, eval_str=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        *list(declared.parameters.values())[1:],
        *(
            inspect.Parameter(name, kind, default=default, annotation=annotation)
            for name, annotation, default in more
        ),
    ]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    vars(run)["__signature__"] = declared.replace(parameters=parameters, return_annotation=int)


def command_group(text: str) -> typer.Typer:
    """A group of commands; `text` is the first line of its help."""
    return typer.Typer(
        help=text, add_completion=False, no_args_is_help=True, rich_markup_mode="markdown"
    )
