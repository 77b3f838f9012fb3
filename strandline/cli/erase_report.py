"""The report of an erasure, for people."""

from __future__ import annotations

from typing import Any

from strandline.cli.output import human_bytes, print_error, print_table, print_text

LEFT_SHOWN_MAX = 50


def print_report(job: dict[str, Any]) -> None:
    """Say what is gone, what is left, and why."""
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
        print_text(f"{of}, would go for good")
    else:
        print_text(f"{of}, were to go; {job['gone_count']} objects are gone, in every version")
    if job["kept_to_offset"] is not None:
        hidden = "are hidden from readers" if not dry else "would be hidden from readers"
        print_text(
            f"records below {job['before_offset']} {hidden} at once; the segment that it lies in "
            f"stays in the store until all of it is erased, --before {job['kept_to_offset'] + 1}"
        )
    for each in job["left"][:LEFT_SHOWN_MAX]:
        version = "" if each["version_id"] is None else f", version {each['version_id']}"
        print_error(f"left: {each['store']}:{each['key']}{version}: {each['why']}")
    if job["left_count"] > LEFT_SHOWN_MAX:
        print_error(f"{job['left_count']} are left; --json has the first thousand")
    for name, each in job["stores"].items():
        if each["trouble"] is not None:
            print_error(f"the store {name} was not looked at to the end: {each['trouble']}")
        if each["versions_unknown"] is not None:
            print_error(f"versions in the store {name} are not known: {each['versions_unknown']}")
    if job["refused"] is not None:
        print_error(f"nothing was changed, and --yes is refused now: {job['refused']}")
    elif dry:
        print_text("nothing was changed: --yes does it, and nothing brings it back")
    elif job["state"] != "finished":
        print_error(job["text"])
    else:
        print_text("a last look at the stores shows nothing of it any more")
