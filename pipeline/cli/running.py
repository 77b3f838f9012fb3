"""Runs a job from its options to its report: session, catalogue, stores, and an exit code."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from kafka_formats.errors import InternalError, InvalidRequest, StrandlineError
from pipeline.catalogue.manifest_catalogue import OnDamage
from pipeline.catalogue.open_catalogue import open_catalogue
from pipeline.cli.spark_output import new_log, stderr_to
from pipeline.jobs.job import JobContext, Report
from pipeline.process.compiled import say_what_is_not_compiled
from pipeline.spark.session import open_session
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import console, errors, print_json


@contextmanager
def job_context(
    name: str,
    *,
    options: Mapping[str, str],
    master: str | None,
    conf: Mapping[str, str],
    on_damage: OnDamage | None = None,
) -> Iterator[JobContext]:
    """Everything a job needs; the Spark session ends with the block. The tier is opened before
    Spark, which takes seconds to start, so that a wrong option is reported at once. `on_damage`: as
    for `open_catalogue`. Spark's own output goes to a file, which is named if the job ends in an
    error that may be Spark's.
    """
    say_what_is_not_compiled()
    catalogue = open_catalogue(options, on_damage=on_damage)
    require_java()
    log = new_log(name)
    errors.print("starting Spark, which takes some seconds", style="dim")
    try:
        with stderr_to(log):
            spark = open_session(name, master=master, conf=conf)
        try:
            yield JobContext(spark, options, catalogue, errors)
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


def require_java() -> None:
    """InvalidRequest without Java: Spark's own error is a stack trace that does not mention it."""
    home = os.environ.get("JAVA_HOME")
    found = Path(home, "bin", "java").exists() if home else shutil.which("java") is not None
    if not found:
        raise InvalidRequest(
            "Spark needs Java 17 or newer: install it, or point JAVA_HOME at it"
            + (f" (JAVA_HOME is {home})" if home else "")
        )


def finish(report: Report, *, report_file: Path | None, json_wanted: bool) -> ExitCode:
    """Print and write the report: what a job of hours found is told even if the file can't be
    written. INCOMPLETE if something in it needs attention.
    """
    if json_wanted:
        print_json(report.as_json())
    else:
        for line in report.lines():
            console.print(line, markup=False)
    if report_file is not None:
        write_report(report_file, report.as_json())
    return ExitCode.OK if report.ok else ExitCode.INCOMPLETE


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
