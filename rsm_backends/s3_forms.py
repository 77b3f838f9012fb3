"""Checks that the body of an S3 answer has the form of its shape.

botocore treats an empty body, an HTML page or foreign XML as an empty answer: a list without keys,
a deletion without errors.
"""

from __future__ import annotations

import re

from botocore.parsers import ResponseParserError

_ROOTS = {
    "CompleteMultipartUploadOutput": "CompleteMultipartUploadResult",
    "CreateMultipartUploadOutput": "InitiateMultipartUploadResult",
    "DeleteObjectsOutput": "DeleteResult",
    "ListMultipartUploadsOutput": "ListMultipartUploadsResult",
    "ListObjectsV2Output": "ListBucketResult",
    "ListObjectVersionsOutput": "ListVersionsResult",
}
_WITHOUT_BODY = frozenset(
    {"AbortMultipartUploadOutput", "DeleteObjectOutput", "PutObjectOutput", "UploadPartOutput"}
)
_BEFORE_ROOT = rb"(?:\xef\xbb\xbf)?(?:\s|<\?xml[^>]*\?>|<!--.*?-->)*"


def _begins_with(root: str) -> re.Pattern[bytes]:
    return re.compile(
        _BEFORE_ROOT + rb"<(?:[A-Za-z0-9]+:)?" + root.encode() + rb"[\s/>]", re.DOTALL
    )


_ROOT = {shape: _begins_with(root) for shape, root in _ROOTS.items()}
_ERROR = _begins_with("Error")


def is_error(body: object) -> bool:
    """True if the body's root element is `Error`, which S3 also sends with status 200."""
    return isinstance(body, bytes) and _ERROR.match(body) is not None


def check_form(shape_name: str, body: object) -> None:
    """Raise ResponseParserError unless the body begins with the answer's root element, or is empty
    for an answer without a body.
    """
    if not isinstance(body, bytes):
        return
    if shape_name in _WITHOUT_BODY and body.strip():
        raise ResponseParserError(f"it has a body of {len(body)} bytes, where S3 sends no body")
    root = _ROOT.get(shape_name)
    if root is not None and root.match(body) is None:
        what = f"{len(body)} bytes that begin otherwise" if body else "an empty body"
        raise ResponseParserError(f"{what}, instead of an element {_ROOTS[shape_name]}")


def truth(text: str) -> bool:
    """The value of a boolean element. ResponseParserError if it is neither true nor false, which
    botocore would treat as false.
    """
    found = {"true": True, "false": False}.get(text.strip().lower())
    if found is None:
        raise ResponseParserError("an element is neither true nor false")
    return found
