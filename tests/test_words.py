"""How judgeq speaks: the messages and help texts that a user reads are short, and in plain English."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from judgeq import errors
from tests.cli import REPO

PACKAGE = REPO / "judgeq"
LONGEST = 40
"""Words of one message; a value that is filled in counts as one."""
ERRORS = {name for name in vars(errors) if name.endswith("Error")}
SPOKEN = {*ERRORS, "Notice", "setting", "option", "argument", "_column", "Check"}
"""Calls whose words a user reads."""
DIALECT = (
    r"so many",
    r"as many as",
    r"what became of",
    r"of which there (?:are|is)",
    r"beside(?! it\b)",
    r"go(?:es|ing)? on with",
    r"goes on\b",
    r"(?:is|are|was|were) told",
    r"tells?\b",
    r"held (?:against|together)",
    r"mended",
    r"ledger",
    r"slighted",
    r"take(?:s|n)? (?:it|them|that) out",
    r"the most that",
    r"made? (?:again|anew)",
    r"nobody's",
    r"is none\b",
    r"gone\b",
    r"alike",
    r"ado",
    r"is not (?:known|had)",
    r"who was never",
)
"""Words of the dialect that judgeq once spoke (regular expressions); what to write instead stands in
CONTRIBUTING.md."""


def words_in(node: ast.expr) -> str | None:
    """The text of an expression, with "…" for what is filled in; None where it isn't a text."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(words_in(part) or "…" for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            both = words_in(left), words_in(right)
            return None if both == (None, None) else "".join(part or "…" for part in both)
        case ast.IfExp(body=body, orelse=other):
            return max((words_in(body) or "…", words_in(other) or "…"), key=len)
    return None


def spoken(path: Path) -> Iterator[tuple[int, str]]:
    """The texts in a file that a user reads, with their lines: messages of errors and notices, help of
    settings and flags, and the docstrings of commands."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            if name in SPOKEN:
                values = [*node.args, *(one.value for one in node.keywords if one.arg == "help")]
                for text in filter(None, map(words_in, values)):
                    yield node.lineno, text
        if isinstance(node, ast.FunctionDef) and any(
            isinstance(one, ast.Call) and ast.unparse(one.func) == "command"
            for one in node.decorator_list
        ):
            for paragraph in (ast.get_docstring(node) or "").split("\n\n"):
                yield node.lineno, paragraph


def test_messages_and_help_are_short_and_plain() -> None:
    wrong: list[str] = []
    dialect = re.compile("|".join(rf"\b(?:{word})" for word in DIALECT))
    for path in sorted(PACKAGE.rglob("*.py")):
        for line, text in spoken(path):
            where, words = f"{path.relative_to(PACKAGE)}:{line}", text.split()
            if len(words) > LONGEST:
                wrong.append(f"{where}: {len(words)} words: {' '.join(words)}")
            wrong += [
                f"{where}: {found.group()!r}: {' '.join(words)}" for found in dialect.finditer(text)
            ]
    assert not wrong, "\n".join(wrong)
