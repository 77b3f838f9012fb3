"""Makes executors check that they run the driver's program before they use a value of it.

Pickle writes the fields of a class with slots as a list, without their names. A program in which a
field was added, removed or moved reads the values into other fields, without an error: of a
different segment, a different offset. So all that is sent to executors is pickled with the
program's mark first, and its values as bytes, which a different program does not unpickle.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from os.path import dirname
from platform import node
from typing import Generic, Never, ParamSpec, TypeVar

from pyspark import cloudpickle

from kafka_formats.errors import Refused
from pipeline.spark.program_mark import own_folders, program_mark

PROGRAM = program_mark(own_folders())
"""The mark of this process, taken when it is loaded: sources that are replaced later are a
different program's.
"""
PLACE = f"{dirname(dirname(dirname(__file__)))} on {node()}"
"""The folder or archive that this process has loaded the program from, and its machine."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result", covariant=True)


class Marked:
    """Base of all that Spark sends to executors: unpickled by the program that pickled it, alone.

    Copies between processes of one driver are marked, too: Spark plans in Python workers.
    """

    def __reduce__(self) -> tuple[object, ...]:
        """The mark, then everything else as bytes."""
        # As Spark pickles: work may be a function of a user's program, which no executor imports.
        pickled = (type(self), self.__getstate__())
        content = cloudpickle.dumps(pickled)  # type: ignore[no-untyped-call]
        return unpickled_here, (PROGRAM, PLACE, content)

    def __setstate__(self, _state: object) -> Never:
        """Refuse the values of a release before the mark."""
        raise _different("of a release before that", "the driver")


def unpickled_here(program: str, place: str, content: bytes) -> object:
    """The object, if the program of this process pickled it; Refused if a different one did. Name
    and arguments are the same in all releases.
    """
    if program != PROGRAM:
        raise _different(program, place)
    kind, state = pickle.loads(content)  # noqa: S301 - the driver's, as all that Spark sends
    found: object = object.__new__(kind)
    vars(found).update(state or {})
    return found


def _different(program: str, place: str) -> Refused:
    return Refused(
        f"this Python worker runs Strandline from {PLACE} (program {PROGRAM}), and the driver a "
        f"different one from {place} (program {program}): their values may have different fields. "
        "Install the same release in the Python of driver and executors, then restart both"
    )


@dataclass(frozen=True)
class SentWork(Marked, Generic[Arguments, Result]):
    """A function for data frames. Picklable if `work` is."""

    work: Callable[Arguments, Result]

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return self.work(*args, **kwargs)
