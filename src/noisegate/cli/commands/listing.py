"""`noisegate list`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Listing(StrEnum):
    """What `noisegate list` can list."""

    methods = "methods"
    objectives = "objectives"
    noises = "noises"
    networks = "networks"


def list_names(
    what: Annotated[Listing, typer.Argument(metavar="WHAT", help="methods, objectives, noises or networks.")],
) -> None:
    """List methods, objectives, noises or networks, with parameters and papers."""
    from noisegate.cli.listing import show

    show(what.value)
