"""Ways to damage bytes, and the one promise about them: CorruptData or a value, nothing else."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from kafka_formats.errors import CorruptData

SOURCE = "some/file"


@st.composite
def damaged(draw: st.DrawFn, good: bytes) -> bytes:
    """`good` cut off, with flipped bits, with a stretch overwritten, or plain garbage."""
    way = draw(st.sampled_from(("cut", "flip", "overwrite", "grow", "garbage")))
    if way == "garbage" or not good:
        return draw(st.binary(max_size=200))
    at = draw(st.integers(0, len(good) - 1))
    if way == "cut":
        return good[:at]
    if way == "flip":
        return good[:at] + bytes([good[at] ^ draw(st.integers(1, 255))]) + good[at + 1 :]
    piece = draw(st.sampled_from((b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0", bytes(8))))
    if way == "overwrite":
        return good[:at] + piece + good[at + len(piece) :]
    return good + draw(st.binary(min_size=1, max_size=20))


def survives(parse: Callable[[bytes], object], data: bytes) -> bool:
    """Whether `parse` accepts `data`; any error but a well-placed CorruptData fails the test."""
    try:
        parse(data)
    except CorruptData as error:
        refusal = error
    else:
        return True
    assert refusal.source == SOURCE
    assert 0 <= refusal.position <= len(data)
    return False
