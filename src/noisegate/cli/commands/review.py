"""`noisegate review`."""

from __future__ import annotations

from typing import Annotated

import typer

from noisegate.cli.commands.options import Audit, Root


def review(
    ctx: typer.Context,
    audit: Audit,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port.")] = 0,
    reviewer: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the reviewer; default: your account name.")
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = True,
    root: Root = None,
) -> None:
    """Serve a local page to decide on the suspects of AUDIT with the keyboard."""
    from noisegate.cli.review import run

    ctx.obj["interrupted"] = f"every decision is stored; `noisegate apply {audit}` writes the corrected data"
    run(audit, port=port, reviewer=reviewer, browser=browser, root=root)
