"""Reads S3's answers, and accepts them only in the form that S3 gives them.

Pure. A proxy, a gateway or a captive portal in between may also answer 200. So an object counts as
stored only if its answer has an ETag, a key as deleted only if the answer names it, and a list as
complete only if the page says so. Anything else is `unexpected`: RetryLater with store, request and
reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from kafka_formats.errors import CorruptData, NotFound, RetryLater, StrandlineError
from rsm_backends.s3_checksums import answered, answered_composite, composite
from rsm_backends.s3_errors import error_for_code
from rsm_backends.store import (
    KeptVersion,
    ObjectInfo,
    ObjectVersion,
    UnfinishedUpload,
    UploadedPart,
)

STORED = frozenset({200, 201, 204})
"""The statuses of a successful PUT: Ceph's `rgw_s3_success_create_obj_status` selects one."""
REMOVED = frozenset({204})
ANSWERED = frozenset({200})

GONE = ("NoSuchKey", "NoSuchVersion", "KeyTooLongError", "XMinioInvalidObjectName")
"""Codes for a key that is absent, or under which the store cannot keep an object."""
_TEXT_CHARACTERS_MAX = 4096
_UNCONFIRMED_SHOWN = 3
_OBJECT_BYTES_MAX = 2**63


@dataclass(frozen=True, slots=True)
class Asked:
    """One request to one store, for error messages."""

    operation: str
    bucket: str
    key: str | None
    store: str

    def unexpected(self, why: str) -> RetryLater:
        """The error for an answer that S3 would not give."""
        what = f"{self.operation} of {self.key!a}" if self.key else self.operation
        return RetryLater(
            f"{what} in bucket {self.bucket!r} of {self.store}: the answer is not S3's: {why}. If "
            "this continues, look for a proxy in between, or correct the store's endpoint_url"
        )

    def status(self, answer: Mapping[str, Any], expected: frozenset[int]) -> None:
        """Raise RetryLater unless the answer came with one of the statuses."""
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
        if status is not None and status not in expected:
            raise self.unexpected(f"the status is {status}")

    def text(self, answer: Mapping[str, Any], name: str, what: str = "element") -> str:
        """The value of a field that S3 never leaves out."""
        found = answer.get(name)
        if not isinstance(found, str) or not 0 < len(found) <= _TEXT_CHARACTERS_MAX:
            raise self.unexpected(f"it has no {what} {name}")
        return found

    def etag(self, answer: Mapping[str, Any]) -> str:
        """The ETag, which the answer for a written object always has."""
        return self.text(answer, "ETag", "header")

    def crc32c(self, answer: Mapping[str, Any]) -> int | None:
        """The full object's CRC32C; None if the answer does not contain it."""
        try:
            return answered(answer)
        except ValueError:
            raise self.unexpected("its header x-amz-checksum-crc32c is not a CRC32C") from None

    def check_crc32c(
        self, answer: Mapping[str, Any], sent: int, parts: Sequence[UploadedPart] = ()
    ) -> None:
        """Raise CorruptData if the store reports a checksum that differs from the one sent."""
        self._compare(self.crc32c(answer), sent)
        if parts:
            try:
                self._compare(answered_composite(answer), composite(parts))
            except ValueError:
                raise self.unexpected("its element ChecksumCRC32C is not a CRC32C") from None

    def _compare(self, told: int | None, sent: int) -> None:
        if told is not None and told != sent:
            raise CorruptData(
                f"the store reports CRC32C {told:08x}, but {sent:08x} was sent",
                source=f"s3://{self.bucket}/{self.key}",
                position=0,
            )

    def described(self, key: str, answer: Mapping[str, Any]) -> ObjectInfo:
        """The object that the answer to a HEAD describes."""
        self.status(answer, ANSWERED)
        size = answer.get("ContentLength")
        if not isinstance(size, int) or not 0 <= size < _OBJECT_BYTES_MAX:
            raise self.unexpected("it has no header Content-Length")
        return ObjectInfo(
            key, size, self.crc32c(answer), _ms(answer.get("LastModified")), self.etag(answer)
        )


@dataclass(frozen=True, slots=True)
class ListedKeys:
    """A page of keys. `token`, if given, continues after it; `more` is false on the last page."""

    objects: tuple[ObjectInfo, ...]
    more: bool
    token: str | None


def listed_keys(
    asked: Asked, answer: Mapping[str, Any], prefix: str, after: str | None
) -> ListedKeys:
    """A page of ListObjectsV2: keys with the prefix, in order, after `after`."""
    more = _goes_on(asked, answer, prefix)
    objects = tuple(_listed(asked, entry) for entry in answer.get("Contents", ()))
    if answer.get("KeyCount", 0) > len(objects):
        raise asked.unexpected("its element KeyCount is higher than the number of its entries")
    keys = [info.key for info in objects]
    if not all(key.startswith(prefix) for key in keys):
        raise asked.unexpected("an element Key does not begin with the prefix asked for")
    behind = [] if after is None else [after]
    if not all(earlier < later for earlier, later in pairwise(behind + keys)):
        raise asked.unexpected("its elements Key are not in ascending order")
    return ListedKeys(objects, more, answer.get("NextContinuationToken") or None)


@dataclass(frozen=True, slots=True)
class ListedFolders:
    """A page of folders; fields as in `ListedKeys`."""

    folders: tuple[str, ...]
    more: bool
    token: str | None
    last: str | None
    """The last key or folder of the page."""


def listed_folders(
    asked: Asked, answer: Mapping[str, Any], prefix: str, after: str | None
) -> ListedFolders:
    """A page of ListObjectsV2 with a delimiter: folders after `after`."""
    more = _goes_on(asked, answer, prefix)
    folders = tuple(asked.text(each, "Prefix") for each in answer.get("CommonPrefixes", ()))
    for each in folders:
        if not each.startswith(prefix) or each.find("/", len(prefix)) != len(each) - 1:
            raise asked.unexpected("an element CommonPrefixes is not a folder below the prefix")
    keys = [asked.text(each, "Key") for each in answer.get("Contents", ())]
    if answer.get("KeyCount", 0) > len(folders) + len(keys):
        raise asked.unexpected("its element KeyCount is higher than the number of its entries")
    if after is not None and not all(each > after for each in (*folders, *keys)):
        raise asked.unexpected("its elements do not come after those of the page before")
    last = max([*folders, *keys], default=None)
    return ListedFolders(folders, more, answer.get("NextContinuationToken") or None, last)


def check_deleted(asked: Asked, answer: Mapping[str, Any], keys: Sequence[str]) -> None:
    """Raise an error unless the answer to DeleteObjects names each key as deleted or absent."""
    asked.status(answer, ANSWERED)
    refused: list[StrandlineError] = []
    gone = [entry.get("Key") for entry in answer.get("Deleted", ())]
    for entry in answer.get("Errors", ()):
        code = str(entry.get("Code", "unknown"))
        if code in GONE:
            gone.append(entry.get("Key"))
            continue
        refused.append(
            error_for_code(
                code,
                0,
                str(entry.get("Message", "")),
                operation="delete",
                bucket=asked.bucket,
                key=str(entry.get("Key")),
            )
        )
    if refused:
        # Errors that do not pass by themselves come first: a retry would only hide them.
        raise min(refused, key=lambda error: isinstance(error, RetryLater))
    named = {key for key in gone if isinstance(key, str)}
    left = [key for key in keys if key not in named]
    if left:
        shown = ", ".join(ascii(key) for key in left[:_UNCONFIRMED_SHOWN])
        raise asked.unexpected(
            f"it has no element Deleted for {len(left)} of {len(keys)} keys, such as {shown}"
        )


@dataclass(frozen=True, slots=True)
class ListedUploads:
    """A page of unfinished uploads, and the markers that request the next; None on the last."""

    uploads: tuple[UnfinishedUpload, ...]
    markers: dict[str, str] | None


def listed_uploads(asked: Asked, answer: Mapping[str, Any], prefix: str) -> ListedUploads:
    """A page of ListMultipartUploads."""
    more = _goes_on(asked, answer, prefix)
    uploads = tuple(
        UnfinishedUpload(asked.text(each, "Key"), asked.text(each, "UploadId"))
        for each in answer.get("Uploads", ())
    )
    if not all(each.key.startswith(prefix) for each in uploads):
        raise asked.unexpected("an element Key does not begin with the prefix asked for")
    if not more:
        return ListedUploads(uploads, None)
    markers = {
        "KeyMarker": answer.get("NextKeyMarker") or (uploads[-1].key if uploads else ""),
        "UploadIdMarker": answer.get("NextUploadIdMarker")
        or (uploads[-1].upload_id if uploads else ""),
    }
    if not all(markers.values()):
        raise asked.unexpected("it is cut off, and has no element NextKeyMarker")
    return ListedUploads(uploads, markers)


@dataclass(frozen=True, slots=True)
class ListedVersions:
    """A page of ListObjectVersions: the versions of the key. `beyond`: the page has longer keys.
    `markers` request the next page; None on the last.
    """

    versions: tuple[ObjectVersion, ...]
    beyond: bool
    markers: dict[str, str] | None


def listed_versions(asked: Asked, answer: Mapping[str, Any], key: str) -> ListedVersions:
    """A page of ListObjectVersions with `key` as its prefix: longer keys come after it."""
    kept, markers = listed_versions_below(asked, answer, key)
    versions = tuple(
        ObjectVersion(each.version_id, each.size)
        for each in kept
        if each.key == key and not each.is_marker
    )
    beyond = any(each.key != key for each in kept)
    return ListedVersions(versions, beyond, None if beyond else markers)


def listed_versions_below(
    asked: Asked, answer: Mapping[str, Any], prefix: str
) -> tuple[tuple[KeptVersion, ...], dict[str, str] | None]:
    """A page of ListObjectVersions, and the markers that request the next; None on the last."""
    more = _goes_on(asked, answer, prefix)
    kept = []
    for each, is_marker in (
        *((each, False) for each in answer.get("Versions", ())),
        *((each, True) for each in answer.get("DeleteMarkers", ())),
    ):
        key, version_id = asked.text(each, "Key"), asked.text(each, "VersionId")
        if not key.startswith(prefix):
            raise asked.unexpected("an element Key does not begin with the prefix asked for")
        size = 0 if is_marker else each.get("Size")
        if not isinstance(size, int) or not 0 <= size < _OBJECT_BYTES_MAX:
            raise asked.unexpected("an entry has no element Size")
        kept.append(KeptVersion(key, version_id, size, is_marker))
    kept.sort(key=lambda each: each.key.encode())  # stable: versions of a key stay newest first
    if not more:
        return tuple(kept), None
    key, version_id = answer.get("NextKeyMarker") or "", answer.get("NextVersionIdMarker") or ""
    # MinIO gives no version id for an object without versions. With versions some would be skipped.
    last = [each.version_id for each in kept if each.key == kept[-1].key]
    if not version_id and set(last) == {"null"}:
        version_id = "null"
    if not key or not version_id:
        raise asked.unexpected("it is cut off, and has no element NextKeyMarker")
    return tuple(kept), {"KeyMarker": key, "VersionIdMarker": version_id}


def next_of(asked: Asked, more: bool, token: str | None, last: str | None) -> str | None:
    """The cursor of the next page: `token`, or else the `last` key; None on the last page."""
    if more and token is None and last is None:
        raise asked.unexpected("it is cut off, and has no element NextContinuationToken")
    return (token or last) if more else None


def believed(asked: Asked, error: StrandlineError, code: str) -> StrandlineError:
    """The error to raise. NotFound needs a code in the answer's body, since any proxy answers 404;
    without one it becomes `unexpected`.
    """
    if isinstance(error, NotFound) and code.isdecimal():
        return asked.unexpected(f"the status is {code}, without an element Code")
    return error


def _goes_on(asked: Asked, answer: Mapping[str, Any], prefix: str) -> bool:
    """True if more pages follow; RetryLater if the answer does not fit the request."""
    asked.status(answer, ANSWERED)
    more = answer.get("IsTruncated")
    if not isinstance(more, bool):
        raise asked.unexpected("it has no element IsTruncated")
    if answer.get("Prefix", prefix) != prefix:
        raise asked.unexpected("its element Prefix is not the prefix asked for")
    return more


def _listed(asked: Asked, entry: Mapping[str, Any]) -> ObjectInfo:
    size = entry.get("Size")
    if not isinstance(size, int) or not 0 <= size < _OBJECT_BYTES_MAX:
        raise asked.unexpected("an entry has no element Size")
    modified_ms, etag = _ms(entry.get("LastModified")), entry.get("ETag") or ""
    return ObjectInfo(asked.text(entry, "Key"), size, None, modified_ms, etag)


def _ms(time: datetime | None) -> int | None:
    return None if time is None else int(time.timestamp() * 1000)


def batches(keys: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """The keys in groups of `size`."""
    for at in range(0, len(keys), size):
        yield keys[at : at + size]
