"""The command that shows all runs in the browser: serve."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from judgeq.cli.app import command
from judgeq.cli.options import Json, RunsDir, StoreAddress, given, with_settings
from judgeq.cli.printing import show_text

if TYPE_CHECKING:
    from judgeq.web.guard import Guard


@command("serve")
@with_settings("texts")
def serve(
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: any free one.")] = 8765,
    host: Annotated[
        str,
        typer.Option(
            help="The address to listen on. If others reach it, they need the printed link."
        ),
    ] = "127.0.0.1",
    token: Annotated[
        bool,
        typer.Option(
            "--token",
            help="Ask for the token on this machine's own address, too: if others log in to it.",
        ),
    ] = False,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    runs_dir: RunsDir = Path("runs"),
    store: StoreAddress = None,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Show all runs in the browser: their reports, and live progress.

    A list of the runs, the report of each, and the progress of one that is running.
    Only this machine reaches it, and runs are only read. Ctrl-C ends it.

    With another --host, others need the printed link, which has a token; the
    connection isn't encrypted.

    Examples:

      judgeq serve --open

      judgeq serve --runs-dir studies --port 9000 --no-texts

      judgeq serve --store postgresql://db/judgeq --token
    """
    import json
    import secrets
    import tempfile

    from judgeq import runs
    from judgeq.cli.running import restore_ctrl_c
    from judgeq.engine import stopping
    from judgeq.web import guard
    from judgeq.web import serve as server

    there = runs.runs_in(runs_dir, store)
    with_texts = given(flags).get("texts", True)
    secret = secrets.token_urlsafe(32) if token or not guard.is_local(host) else None

    def ready(at: Guard) -> None:
        if as_json:
            show_text(json.dumps({"address": at.address}))
        else:
            show_text(f"{at.address}\nShows the runs in {there.shown}. Ctrl-C ends it.")
        if browser:
            typer.launch(at.address if secret is None else _private(Path(folder), at.address))

    restore_ctrl_c()
    with tempfile.TemporaryDirectory(prefix="judgeq-") as folder:
        try:
            served = server.serving(there, host, port, token=secret, with_texts=with_texts)
            stopping.run_loop(server.serve(served, ready))
        except KeyboardInterrupt:
            return
        except BrokenPipeError:  # nobody reads what is printed
            raise
        except OSError as error:
            raise guard.unable(host, port, error) from error


def _private(folder: Path, address: str) -> str:
    """A file that leads to an address, in a folder that only this user can read: the words of the
    command that opens a browser are seen by all who are on the machine."""
    from judgeq.ui import html

    file = folder / "open.html"
    file.write_text(html.rendered("open.html", address=address), encoding="utf-8")
    return file.as_uri()
