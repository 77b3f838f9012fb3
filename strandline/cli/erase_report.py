"""The report of an erasure, for people."""

from __future__ import annotations

from typing import Any

from strandline.cli.output import human_bytes, print_error, print_table, print_text

LEFT_SHOWN_MAX = 50


def print_report(job: dict[str, Any]) -> None:
    """Print what was deleted, what is left, and why."""
    dry = job["dry_run"]
    print_table(
        ["store", "objects", "versions", "delete markers", "size", "live keys kept"],
        [
            (
                name, each["objects"], each["versions"], each["markers"],
                human_bytes(each["size_bytes"]), each["kept"].get("live", 0),
            )
            for name, each in job["stores"].items()
        ],
    )  # fmt: skip
    of = f"{job['segments']} segments, {human_bytes(job['size_bytes'])}"
    if dry:
        print_text(f"{of}, would be deleted for good")
    else:
        print_text(
            f"{of}, were to be deleted; {job['gone_count']} objects are gone, in every version"
        )
    if job["kept_to_offset"] is not None:
        hidden = "are hidden from readers" if not dry else "would be hidden from readers"
        print_text(
            f"records below {job['before_offset']} {hidden} at once; the segment that contains "
            "this offset is kept in the store until all of it is erased, with --before "
            f"{job['kept_to_offset'] + 1}"
        )
    for each in job["left"][:LEFT_SHOWN_MAX]:
        version = "" if each["version_id"] is None else f", version {each['version_id']}"
        print_error(f"left: {each['store']}:{each['key']}{version}: {each['why']}")
    if job["left_count"] > LEFT_SHOWN_MAX:
        print_error(f"{job['left_count']} objects are left; --json lists the first thousand")
    for name, each in job["stores"].items():
        if each["trouble"] is not None:
            print_error(f"the store {name} was not listed completely: {each['trouble']}")
        if each["versions_unknown"] is not None:
            print_error(f"versions in the store {name} are unknown: {each['versions_unknown']}")
    if job["refused"] is not None:
        print_error(f"nothing was changed, and --yes would be refused now: {job['refused']}")
    elif dry:
        print_text("nothing was changed: --yes does it, which can't be undone")
    elif job["state"] != "finished":
        print_error(job["text"])
    else:
        print_text("a final listing of the stores shows none of these objects any more")
