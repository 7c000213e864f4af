"""`noisegate demo`: the columns of the study `demo` that tell the story, then an audit; on the CPU."""

from __future__ import annotations

from pathlib import Path

from noisegate.cli import demo_audit
from noisegate.cli.study import run_study
from noisegate.errors import InputError
from noisegate.studies.choice import Choice
from noisegate.studies.engines import build
from noisegate.studies.papers.demo.story import STORY
from noisegate.studies.study import slug


def run(out: Path) -> int:
    """Train the runs that are not stored in `out` yet, print the table, write the report; return the exit code."""
    if out.exists() and not out.is_dir():
        raise InputError(f"--out names a folder, but {out} is a file")
    choice = Choice(columns=tuple(map(slug, STORY)), seeds=1)
    # On the CPU wherever it runs: these networks are small, and the numbers should not depend on a
    # GPU.
    code = run_study("demo", choice, out, engine=build("local"), device="cpu")
    demo_audit.run(out)
    return code
