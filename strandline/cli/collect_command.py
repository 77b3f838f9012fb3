"""`strandline collect`: what in the stores is garbage, and removing it."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from strandline.cli.client import DEFAULT_URL, JsonOption, NodeClient, TokenFileOption, UrlOption
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import console, human_bytes, print_error, print_json, print_table
from strandline.cli.query_answers import path_part
from strandline.node import ambient

ASKED_EVERY_S = 0.5
MEANING = {
    "live": "segments that can be read: stay",
    "copy_pending": "being copied: stay",
    "delete_pending": "being deleted, after its delay: stay",
    "orphan": "of deleted segments: go",
    "foreign": "never known to the metadata: never touched",
    "own": "cluster marker and snapshots: stay",
}


def collect_command(
    apply: Annotated[
        bool, typer.Option("--apply", help="Delete the orphans; without it, only look.")
    ] = False,
    accept_objects: Annotated[
        int, typer.Option(min=0, help="So many orphans may go, whatever part of all that is.")
    ] = 0,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """List the stores, ask the metadata about each object, and remove what it deleted.

    Example: `strandline collect`, then `strandline collect --apply`
    """
    body: dict[str, object] = {"apply": apply, "accept_objects": accept_objects}
    with NodeClient(url, token_file) as client:
        job = client.change("POST", "/v1/jobs/collect", body)
        with console.status("listing the stores") as status:
            while job["state"] == "running":
                asyncio.run(ambient.sleep(ASKED_EVERY_S))
                job = client.get(f"/v1/jobs/{path_part(job['id'])}")
                status.update(
                    f"{job['listed']} objects listed, {job['deleted']['objects']} deleted"
                )
    if json:
        print_json(job)
    else:
        _print(job)
    return ExitCode.OK if job["state"] == "finished" else ExitCode.INCOMPLETE


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
        console.print(f"store {store}: {objects} objects, {size}", markup=False)
    for name in ("foreign", "orphan"):
        for example in job["found"][name]["examples"]:
            console.print(f"{name}: {example}", markup=False)
    deleted = job["deleted"]
    if job["apply"]:
        console.print(
            f"deleted: {deleted['objects']} objects, {human_bytes(deleted['size_bytes'])}"
        )
    for why, objects in job["held_back"].items():
        console.print(f"{objects} orphans stay for now: {why}", markup=False)
    if job["state"] != "finished":
        print_error(job["text"])
    elif job["text"]:
        console.print(job["text"], markup=False)
