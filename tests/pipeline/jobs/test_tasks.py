"""Work spread over Spark: order, waves, repeats, errors that keep their kind."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from rich.console import Console

from kafka_formats.errors import CorruptData, InternalError, RetryLater
from pipeline.jobs.tasks import attempts_of_a_task, run_tasks

pytestmark = pytest.mark.spark


def square(number: int) -> int:
    return number * number


def corrupt_at_seven(number: int) -> int:
    if number == 7:
        raise CorruptData("a flipped bit", source="topic/0/7.log", position=61)
    return number


def stumble(number: int) -> int:
    raise RetryLater("the store is slow today")


def burst(number: int) -> int:
    raise ZeroDivisionError(f"number {number}")


def leave_a_mark(folder: Path) -> str:
    (folder / "mark").touch()
    return folder.name


def quiet() -> Console:
    return Console(file=io.StringIO())


def test_results_come_in_the_order_of_the_items_over_many_waves(spark: SparkSession) -> None:
    found = list(run_tasks(spark.sparkContext, range(20), square, what="squares", console=quiet()))
    assert found == [number * number for number in range(20)]


def test_an_error_of_ours_comes_out_of_a_task_as_it_is(spark: SparkSession) -> None:
    running = run_tasks(
        spark.sparkContext, range(10), corrupt_at_seven, what="checks", console=quiet()
    )
    with pytest.raises(CorruptData, match="a flipped bit") as caught:
        list(running)
    assert (caught.value.source, caught.value.position) == ("topic/0/7.log", 61)


def test_what_fails_for_now_and_goes_on_failing_says_so(spark: SparkSession) -> None:
    with pytest.raises(RetryLater, match="slow today"):
        list(run_tasks(spark.sparkContext, [1], stumble, what="stumbles", console=quiet()))


@pytest.mark.parametrize(
    ("master", "set_to", "attempts"),
    [
        ("local", None, 1),
        ("local[2]", "7", 1),
        ("local[*]", None, 1),
        ("local[2,4]", None, 4),
        ("local[*, 3]", "7", 3),
        ("local-cluster[2,1,1024]", None, 4),
        ("spark://host:7077", "7", 7),
    ],
)
def test_how_often_spark_tries_a_task(master: str, set_to: str | None, attempts: int) -> None:
    conf = {} if set_to is None else {"spark.task.maxFailures": set_to}
    context = SimpleNamespace(master=master, getConf=lambda: conf)
    assert attempts_of_a_task(cast(SparkContext, context)) == attempts


def test_a_bug_in_a_task_is_told_with_its_words(spark: SparkSession) -> None:
    with pytest.raises(InternalError, match="number 3"):
        list(run_tasks(spark.sparkContext, [3], burst, what="bursts", console=quiet()))


def test_nothing_to_do_needs_no_spark_job(spark: SparkSession) -> None:
    assert list(run_tasks(spark.sparkContext, [], square, what="nothing", console=quiet())) == []


def test_abandoning_the_results_stops_the_waves_behind_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    folders = [tmp_path / f"{number:03}" for number in range(64)]
    for folder in folders:
        folder.mkdir()
    running = run_tasks(spark.sparkContext, folders, leave_a_mark, what="marks", console=quiet())
    assert next(running) == "000"
    running.close()  # type: ignore[attr-defined]  # a generator behind the Iterator it is told to be
    assert sum((folder / "mark").exists() for folder in folders) < len(folders)
