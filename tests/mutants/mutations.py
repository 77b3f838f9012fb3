"""Mutants of the files that no log may be lost by: one operator, number or keyword turned each.

cosmic-ray knows where a file can be changed, and changes it; which changes are worth a run is said
here.
"""

from __future__ import annotations

import hashlib
from ast import literal_eval
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.ast.ast_query import ASTQuery
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

SCOPE = (
    "rlmm/raft/*.py",
    "rlmm/log/*.py",
    "rlmm/apply/*.py",
    "rlmm/lineage.py",
    "rlmm/rows/coverage.py",
    "rlm/copy/copy_plan.py",
    "rlm/retention/cut_off_times.py",
    "rlm/retention/live_segments.py",
    "rlm/retention/retention_plan.py",
    "rlm/delete/delete_due.py",
    "rlm/data_plane/segment_verification.py",
)

OPERATORS = (
    "AddNot",
    "ExceptionReplacer",
    "NumberReplacer",
    "ReplaceAndWithOr",
    "ReplaceBinaryOperator_Add_Sub",
    "ReplaceBinaryOperator_Sub_Add",
    "ReplaceBinaryOperator_FloorDiv_Mul",
    "ReplaceBinaryOperator_Mul_FloorDiv",
    "ReplaceBreakWithContinue",
    "ReplaceComparisonOperator_Eq_NotEq",
    "ReplaceComparisonOperator_GtE_Gt",
    "ReplaceComparisonOperator_GtE_Lt",
    "ReplaceComparisonOperator_Gt_GtE",
    "ReplaceComparisonOperator_Gt_LtE",
    "ReplaceComparisonOperator_Is_IsNot",
    "ReplaceComparisonOperator_IsNot_Is",
    "ReplaceComparisonOperator_LtE_Gt",
    "ReplaceComparisonOperator_LtE_Lt",
    "ReplaceComparisonOperator_Lt_GtE",
    "ReplaceComparisonOperator_Lt_LtE",
    "ReplaceComparisonOperator_NotEq_Eq",
    "ReplaceContinueWithBreak",
    "ReplaceFalseWithTrue",
    "ReplaceOrWithAnd",
    "ReplaceTrueWithFalse",
    "ReplaceUnaryOperator_Delete_Not",
    "ZeroIterationForLoop",
)
"""One of each kind of slip: a border off by one, a condition turned, a step left out. Of cosmic-ray
they leave out what only makes nonsense (`+` as `**`), which any test finds.
"""


@dataclass(frozen=True, slots=True)
class Mutant:
    """The `occurrence`-th place of `operator` in the file `path`. `line` counts from 1, `text` is
    that line, `file_hash` tells whether the file is still as it was.
    """

    path: str
    definition: str
    operator: str
    occurrence: int
    line: int
    text: str
    file_hash: str

    def code(self, root: Path) -> str:
        """The file's text with the change in it."""
        code = (root / self.path).read_text()
        changed = mutate_code(code, _operator(self.operator), self.occurrence)
        assert changed is not None, f"{self} is not in its file"
        return str(changed)


def mutants(root: Path) -> Iterator[Mutant]:
    """All mutants of the files in scope, in order."""
    for path in sorted(path for pattern in SCOPE for path in root.glob(pattern)):
        yield from _of_file(path, str(path.relative_to(root)))


def sample(found: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """`count` of them, the same ones for equal seeds while the files are the same."""
    return Random(seed).sample(found, min(count, len(found)))


def _of_file(file: Path, path: str) -> Iterator[Mutant]:
    code = file.read_text()
    lines, tree = code.splitlines(), get_ast(code)
    file_hash = hashlib.sha256(code.encode()).hexdigest()[:12]
    for name in OPERATORS:
        operator = _operator(name)
        places = (
            (node, line)
            for node in ast_nodes(tree)
            for (line, _), _ in operator.mutation_positions(node)
        )
        for occurrence, (node, line) in enumerate(places):
            text = lines[line - 1].strip()
            # An assert that never fires is no rule; a decorator's True is `slots`.
            if text.startswith(("assert ", "@")) or _is_large(node):
                continue
            definition = ASTQuery(node).get_definition_name() or ""
            yield Mutant(path, definition, name, occurrence, line, text, file_hash)


def _is_large(node: Any) -> bool:
    """Sizes and times, where one more or less is no slip."""
    return getattr(node, "type", "") == "number" and abs(literal_eval(node.value)) > 64


def _operator(name: str) -> Any:
    return get_operator(f"core/{name}")()
