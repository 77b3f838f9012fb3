"""`strandline pipeline usage`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kafka_formats.errors import InvalidRequest
from pipeline.cli.options import key_values
from pipeline.cli.running import Job, runs_job


@runs_job
def usage_command(
    job: Job,
    output: Annotated[
        Path | None, typer.Option("--output", help="Folder for pictures (PNG) and a page (HTML).")
    ] = None,
    prices: Annotated[
        Path | None, typer.Option("--prices", help="Price table (TOML); see --print-prices.")
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option("--price", help="One price, `storage_gib_month=0.01`; may be repeated."),
    ] = None,
    print_prices: Annotated[
        bool, typer.Option("--print-prices", help="Print the default price table and stop.")
    ] = False,
    read_gib: Annotated[
        float, typer.Option(min=0, help="GiB read from the bucket in a month, as an estimate.")
    ] = 0.0,
) -> int:
    """Bytes, objects and requests of each topic by age, and what a month costs.

    Example: `strandline pipeline usage --store s3://bucket/prefix --output usage`
    """
    from pipeline.process import ambient
    from pipeline.usage.prices import DEFAULT_PRICES, GIB, changed, parse_prices

    if print_prices:
        typer.echo(DEFAULT_PRICES, nl=False)
        return 0
    from pipeline.jobs.usage import UsageOptions, run
    from pipeline.usage.tier_usage import READ_BYTES

    text, name = DEFAULT_PRICES, "the default price table"
    if prices is not None:
        name = str(prices)
        try:
            text = prices.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"{prices} can't be read: {error}", field="--prices") from None
    table = changed(parse_prices(text, source=name), key_values(price, option="--price"))
    read_bytes = round(read_gib * GIB)
    options = UsageOptions(table, output, read_bytes, read_bytes // READ_BYTES, ambient.now_ms())
    with job.context("usage") as context:
        done = run(context, options)
    return job.finish(done)
