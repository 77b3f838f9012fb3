"""The error tree: kinds are distinct and stable, and errors cross process borders whole."""

from __future__ import annotations

import pickle

from kafka_formats import errors
from kafka_formats.errors import CorruptData, StrandlineError


def kinds() -> list[type[StrandlineError]]:
    return [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, StrandlineError)
    ]


def test_kinds_are_distinct() -> None:
    concrete = [error for error in kinds() if error is not StrandlineError]
    assert len({error.kind for error in concrete}) == len(concrete)


def test_every_kind_stands_in_the_tree_of_the_module() -> None:
    assert errors.__doc__ is not None
    assert all(error.__name__ in errors.__doc__ for error in kinds())


def test_corrupt_data_names_file_and_position_and_can_be_pickled() -> None:
    error = CorruptData("no batch", source="a.log", position=17)
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error) == "a.log at byte 17: no batch"
    assert (copy.source, copy.position, copy.detail) == ("a.log", 17, "no batch")
