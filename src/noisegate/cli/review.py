"""`noisegate review`: the local page on which people decide about suspicious labels."""

from __future__ import annotations

from pathlib import Path

from noisegate.auditing.review.serve import serve
from noisegate.cli import output


def run(
    audit: Path,
    *,
    port: int = 0,
    reviewer: str | None = None,
    browser: bool = True,
    root: Path | None = None,
) -> None:
    """Serve the page until Ctrl-C; `browser` opens it."""

    def started(address: str) -> None:
        output.say(f"review page: {address}")
        output.say("stop with Ctrl-C; every decision is stored at once")
        if browser:
            import webbrowser

            webbrowser.open(address)

    serve(audit, port=port, reviewer=reviewer, root=root, started=started)
