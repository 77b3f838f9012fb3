"""`@runs_job`: a job from its options to its report: session, catalogue, and an exit code."""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_formats.errors import InternalError, InvalidRequest, StrandlineError
from pipeline.catalogue.manifest_catalogue import OnDamage
from pipeline.catalogue.open_catalogue import open_catalogue
from pipeline.cli.options import (
    ConfOption,
    JsonOption,
    MasterOption,
    ReportOption,
    StoreOption,
    TierOption,
    TokenFileOption,
    UrlOption,
    check_names,
    tier_options,
    typed_key_values,
)
from pipeline.cli.spark_output import new_log, stderr_to
from pipeline.jobs.job import JobContext, Report
from pipeline.process.compiled import say_what_is_not_compiled
from pipeline.spark.session import open_session
from strandline.cli.asking import declare
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import console, errors, print_json

_NODE_OPTIONS = (("url", UrlOption, None), ("token_file", TokenFileOption, None))
_OPTIONS = (
    ("option", TierOption, None),
    ("master", MasterOption, None),
    ("conf", ConfOption, None),
    ("report", ReportOption, None),
    ("json", JsonOption, False),
)


@dataclass(frozen=True, slots=True)
class Job:
    """The options that all jobs share: the tier's, Spark's, and the report's."""

    tier: Mapping[str, str]
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    report_file: Path | None = None
    json_wanted: bool = False

    @contextmanager
    def context(self, name: str, on_damage: OnDamage | None = None) -> Iterator[JobContext]:
        """Everything a job needs; the Spark session ends with the block. The tier is opened before
        Spark, which takes seconds to start, so that a wrong option is reported at once.
        `on_damage`: as for `open_catalogue`. Spark's own output goes to a file, which is named if
        the job ends in an error that may be Spark's.
        """
        say_what_is_not_compiled()
        check_names(self.tier, job=name)
        catalogue = open_catalogue(self.tier, on_damage=on_damage)
        require_java()
        log = new_log(name)
        errors.print("starting Spark, which takes some seconds", style="dim")
        try:
            with stderr_to(log):
                spark = open_session(name, master=self.master, conf=self.conf)
            try:
                yield JobContext(spark, self.tier, catalogue, errors)
            finally:
                spark.stop()
                catalogue.close()
        except BaseException as error:
            if not isinstance(error, StrandlineError) or isinstance(error, InternalError):
                errors.print(f"Spark's own output is in {log}", markup=False)
                raise
            log.unlink()
            raise
        log.unlink()

    def finish(self, report: Report) -> ExitCode:
        """Print and write the report: the result of a job of hours is printed even if the file
        can't be written. INCOMPLETE if something in it needs attention.
        """
        if self.json_wanted:
            print_json(report.as_json())
        else:
            for line in report.lines():
                console.print(line, markup=False)
        if self.report_file is not None:
            write_report(self.report_file, report.as_json())
        return ExitCode.OK if report.ok else ExitCode.INCOMPLETE


def runs_job(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options that all jobs share to a command that takes a `Job` first."""
    return _with_options(command, (("store", StoreOption, None), *_NODE_OPTIONS, *_OPTIONS))


def runs_job_on_bucket(command: Callable[..., int]) -> Callable[..., int]:
    """Make a command of a job without a node, as `runs_job` does."""
    return _with_options(command, (("store", StoreOption, None), *_OPTIONS))


def _with_options(
    command: Callable[..., int], more: Sequence[tuple[str, Any, Any]]
) -> Callable[..., int]:
    defaults = {name: default for name, _, default in (*_NODE_OPTIONS, *more)}

    @functools.wraps(command)
    def run(**given: Any) -> int:
        shared = {name: given.pop(name, default) for name, default in defaults.items()}
        job = Job(
            tier_options(shared["option"], shared["store"], shared["url"], shared["token_file"]),
            shared["master"],
            typed_key_values(shared["conf"], option="--conf"),
            shared["report"],
            shared["json"],
        )
        return command(job, **given)

    declare(run, command, more)
    return run


def require_java() -> None:
    """Raise InvalidRequest without Java: Spark's own error is a stack trace that does not mention
    it.
    """
    home = os.environ.get("JAVA_HOME")
    found = Path(home, "bin", "java").exists() if home else shutil.which("java") is not None
    if not found:
        raise InvalidRequest(
            "Spark needs Java 17 or newer: install it, or point JAVA_HOME at it"
            + (f" (JAVA_HOME is {home})" if home else "")
        )


def write_report(path: Path, document: Mapping[str, object]) -> None:
    """Write the report whole or not at all: a cut file must not look like a report."""
    unfinished = path.parent / f".{path.name}.unfinished"
    try:
        unfinished.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        unfinished.replace(path)
    except OSError as error:
        with suppress(OSError):
            unfinished.unlink()
        raise InvalidRequest(
            f"{path} can't be written: {error.strerror}", field="--report"
        ) from None
