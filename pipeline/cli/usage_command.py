"""`strandline pipeline usage`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kafka_formats.errors import InvalidRequest
from pipeline.cli.options import (
    ConfOption,
    JsonOption,
    MasterOption,
    ReportOption,
    StoreOption,
    TierOption,
    TokenFileOption,
    UrlOption,
    key_values,
    tier_options,
    typed_key_values,
)
from pipeline.cli.running import finish, job_context


def usage_command(
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
    store: StoreOption = None,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    option: TierOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    report: ReportOption = None,
    json: JsonOption = False,
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
    with job_context(
        "usage",
        options=tier_options(option, store, url, token_file),
        master=master,
        conf=typed_key_values(conf, option="--conf"),
    ) as context:
        done = run(context, options)
    return finish(done, report_file=report, json_wanted=json)
