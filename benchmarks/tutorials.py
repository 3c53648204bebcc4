"""`make tutorials`: run the notebooks of docs/tutorials/ and keep what they print.

`python -m benchmarks.tutorials DIR` runs nothing and writes each as a page of the site in DIR.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NOTEBOOKS = sorted((Path(__file__).parent.parent / "docs" / "tutorials").glob("*.ipynb"))
KEPT = ("text/plain", "image/png")
"""Forms of outputs that are kept; others repeat them."""
STYLES = re.compile(r"\x1b\[[0-9;]*m|\r")
"""What colours the output of a command: a kernel asks for it."""


def main() -> None:
    if sys.argv[1:]:
        write_pages(Path(sys.argv[1]))
        return
    for path in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as folder:
            done = executed(path, Path(folder))
        path.write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n", "utf-8")


def write_pages(folder: Path) -> None:
    """Write each notebook as a page in `folder`/tutorials; pages in `folder` then link to that."""
    for path in NOTEBOOKS:
        lines = page(json.loads(path.read_text("utf-8")))
        text = "\n".join([*lines, f"[This page as a notebook]({path.name})", ""])
        (folder / "tutorials" / f"{path.stem}.md").write_text(text, "utf-8")
    for other in folder.glob("*.md"):
        text = other.read_text("utf-8")
        other.write_text(text.replace(".ipynb)", ".md)"), "utf-8")


def executed(path: Path, folder: Path) -> dict[str, Any]:
    """A notebook, run in a folder as by a new user without a network, with its outputs.

    Raises nbclient's CellExecutionError."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, 4)  # type: ignore[no-untyped-call]
    binaries = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    new = {"HOME": str(folder), "XDG_CACHE_HOME": "", "XDG_STATE_HOME": "", "PATH": binaries}
    before = dict(os.environ)
    for variable in before:
        if variable.startswith(("JUDGEQ", "OPENAI", "ANTHROPIC")):
            del os.environ[variable]
    os.environ.update(new, JUDGEQ_OFFLINE="1")
    try:
        client = NotebookClient(
            notebook, timeout=60, record_timing=False, resources={"metadata": {"path": str(folder)}}
        )
        client.execute()
    finally:
        os.environ.clear()
        os.environ.update(before)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = list(_kept(cell.outputs))
    plain: dict[str, Any] = json.loads(nbformat.writes(notebook, 4))  # type: ignore[no-untyped-call]
    return plain


def _kept(outputs: list[Any]) -> Iterator[Any]:
    """What was printed, as one text without styles, and what was shown."""
    printed = [one for one in outputs if one.get("name") == "stdout"]
    if printed:
        printed[0].text = STYLES.sub("", "".join(one.text for one in printed))
        yield printed[0]
    for one in outputs:
        if "data" in one:
            one.data = {form: one.data[form] for form in KEPT if form in one.data}
            if "execution_count" in one:
                one.execution_count = None
            yield one


def page(notebook: dict[str, Any]) -> Iterator[str]:
    """A notebook as the lines of a page in Markdown."""
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        yield text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"
        yield ""
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                image = "".join(data["image/png"]).replace("\n", "")
                yield f"![What the cell draws](data:image/png;base64,{image})\n"
            else:
                shown = "".join(output.get("text") or data["text/plain"]).rstrip()
                yield f"```text\n{shown}\n```\n"


if __name__ == "__main__":
    main()
