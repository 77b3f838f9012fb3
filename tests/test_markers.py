"""A test file is left out unread only where `-m` rules all of its tests out."""

from __future__ import annotations

import pytest

from tests.markers import markers_left_out, markers_of_all


@pytest.mark.parametrize(
    ("expression", "left_out"),
    [
        ("not spark and not e2e", {"spark", "e2e"}),
        ("not soak", {"soak"}),
        ("", set()),
        ("soak", set()),
        ("not soak or e2e", set()),
        ("not (soak and e2e)", set()),
        ("(integration or e2e) and not soak", set()),
    ],
)
def test_only_a_plain_list_of_markers_leaves_files_out(expression: str, left_out: set[str]) -> None:
    assert markers_left_out(expression) == left_out


def test_a_files_own_markers_are_those_of_all_its_tests() -> None:
    listed = "import x\npytestmark = [pytest.mark.e2e, pytest.mark.timeout(9)]\n"
    assert markers_of_all(listed) == {"e2e", "timeout"}
    assert markers_of_all("@pytest.mark.soak\ndef test_a() -> None: ...\n") == frozenset()
    assert markers_of_all("    pytestmark = pytest.mark.soak\n") == frozenset()
