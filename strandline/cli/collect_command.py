"""`strandline collect`: find garbage in the stores, and delete it."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from strandline.cli.asking import Answer, asks_node
from strandline.cli.client import NodeClient
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import console, human_bytes, print_error, print_table, print_text
from strandline.cli.query_answers import path_part
from strandline.node import ambient

ASKED_EVERY_S = 0.5
MEANING = {
    "live": "of readable segments; kept",
    "copy_pending": "of copies under way; kept",
    "delete_pending": "to be deleted after a delay; kept until then",
    "orphan": "of deleted segments; deleted with --apply",
    "foreign": "unknown to the metadata; never deleted",
    "own": "cluster marker and snapshots; kept",
}


@asks_node
def collect_command(
    client: NodeClient,
    apply: Annotated[
        bool, typer.Option("--apply", help="Delete the orphans; without it, only list them.")
    ] = False,
    accept_objects: Annotated[
        int,
        typer.Option(
            min=0,
            help="The most orphans that may be deleted, whatever share of all objects they are.",
        ),
    ] = 0,
) -> Answer:
    """Find objects of deleted segments in the stores; delete them with `--apply`.

    Lists each store and looks every object up in the metadata.

    Example: `strandline collect`, then `strandline collect --apply`
    """
    body: dict[str, object] = {"apply": apply, "accept_objects": accept_objects}
    job = client.change("POST", "/v1/jobs/collect", body)
    with console.status("listing the stores") as status:
        while job["state"] == "running":
            asyncio.run(ambient.sleep(ASKED_EVERY_S))
            job = client.get(f"/v1/jobs/{path_part(job['id'])}")
            status.update(f"{job['listed']} objects listed, {job['deleted']['objects']} deleted")
    code = ExitCode.OK if job["state"] == "finished" else ExitCode.INCOMPLETE
    return Answer(job, lambda: _print(job), code)


def _print(job: dict[str, Any]) -> None:
    print_table(
        ["objects", "count", "size", "which"],
        [
            (name.replace("_", " "), found["objects"], human_bytes(found["size_bytes"]), meaning)
            for name, meaning in MEANING.items()
            for found in (job["found"][name],)
        ],
    )
    for store, tallies in job["stores"].items():
        objects = sum(each["objects"] for each in tallies.values())
        size = human_bytes(sum(each["size_bytes"] for each in tallies.values()))
        print_text(f"store {store}: {objects} objects, {size}")
    for name in ("foreign", "orphan"):
        for example in job["found"][name]["examples"]:
            print_text(f"{name}: {example}")
    deleted = job["deleted"]
    if job["apply"]:
        console.print(
            f"deleted: {deleted['objects']} objects, {human_bytes(deleted['size_bytes'])}"
        )
    for why, objects in job["held_back"].items():
        print_text(f"{objects} orphans are kept for now: {why}")
    if job["state"] != "finished":
        print_error(job["text"])
    elif job["text"]:
        print_text(job["text"])
