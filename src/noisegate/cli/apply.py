"""`noisegate apply`: corrected data and decisions, as files."""

from __future__ import annotations

from pathlib import Path

from noisegate.auditing import exchange
from noisegate.auditing.apply import apply
from noisegate.cli import output
from noisegate.errors import InputError


def run(
    audit: Path,
    *,
    out: Path | None = None,
    moves: Path | None = None,
    decisions: Path | None = None,
    label_studio: Path | None = None,
    take: Path | None = None,
    overwrite: bool = False,
    force: bool = False,
    root: Path | None = None,
) -> None:
    """Import decisions if asked to, then write the requested files."""
    if not any((out, moves, decisions, label_studio, take)):
        raise InputError(
            "say what to write: --out DATA, --moves, --decisions or --label-studio FILE; or --import FILE"
        )
    if take is not None:
        came = exchange.import_decisions(audit, take, overwrite=overwrite)
        output.say(f"{came.stored:,} decisions taken from {take}, {came.known:,} were known")
        if came.conflicts:
            output.say(
                f"{len(came.conflicts):,} rows are decided otherwise here and stay as they are "
                "(--overwrite takes the file's)"
            )
    for place, list_moves in ((out, False), (moves, True)):
        if place is not None:
            done = apply(audit, place, list_moves=list_moves, force=force)
            output.say(
                f"{done.changed:,} labels changed ({done.decided:,} decided): {done.out}, log in {done.log}"
            )
    if decisions is not None:
        output.say(f"{exchange.export_decisions(audit, decisions):,} decisions written to {decisions}")
    if label_studio is not None:
        n = exchange.export_label_studio(audit, label_studio, root)
        output.say(f"{n:,} Label Studio tasks written to {label_studio}")
