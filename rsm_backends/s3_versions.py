"""Lists the versions of objects in a versioned bucket.

A bucket without versioning has one version of each object, `null`, the one that a plain GET reads.
"""

from __future__ import annotations

from kafka_formats.errors import RetryLater
from rsm_backends.s3_answers import listed_versions, listed_versions_below
from rsm_backends.s3_requests import S3Requests
from rsm_backends.store import VERSIONS_MAX, ObjectVersion, VersionPage

VERSION_PAGES_MAX = 1000
"""The pages of versions after which a list counts as endless."""
_BETWEEN = "\n"
"""The separator in a cursor between key and version id; keys have printable characters only."""


async def list_versions(requests: S3Requests, key: str) -> tuple[ObjectVersion, ...]:
    """The versions of exactly this key, newest first, without delete markers."""
    found: list[ObjectVersion] = []
    markers: dict[str, str] = {}
    asked = requests.asked("list versions", key)
    for _ in range(VERSION_PAGES_MAX):
        answer = await requests.call(asked, "list_object_versions", Prefix=key, **markers)
        page = listed_versions(asked, answer, key)
        found += page.versions
        if len(found) >= VERSIONS_MAX or page.beyond or page.markers is None:
            return tuple(found[:VERSIONS_MAX])
        if page.markers == markers:
            raise asked.unexpected("its element NextKeyMarker leads to the same page again")
        markers = page.markers
    raise RetryLater(
        f"{asked.operation} in bucket {asked.bucket!r}: the list does not end after "
        f"{VERSION_PAGES_MAX} pages"
    )


async def list_versions_below(
    requests: S3Requests, prefix: str, cursor: str | None, limit: int
) -> VersionPage:
    """A page of the versions and delete markers of all keys with the prefix."""
    asked = requests.asked("list versions", prefix)
    markers: dict[str, str] = {}
    if cursor is not None:
        key, _, version_id = cursor.rpartition(_BETWEEN)
        markers = {"KeyMarker": key, "VersionIdMarker": version_id}
    answer = await requests.call(
        asked, "list_object_versions", Prefix=prefix, MaxKeys=limit, **markers
    )
    versions, following = listed_versions_below(asked, answer, prefix)
    if following is None:
        return VersionPage(versions, None)
    if following == markers:
        raise asked.unexpected("its element NextKeyMarker leads to the same page again")
    return VersionPage(versions, _BETWEEN.join(following.values()))
