"""Print the calls from `ng.train` to an update of the weights on a CPU.

    python tools/walk.py

Fewer calls are fewer places to read when one wants to know what training does.
"""

from __future__ import annotations

import sys
import traceback

import numpy as np

import noisegate as ng
from noisegate.training.optimizers import Optimizer


class Arrived(Exception):
    """The first update was reached."""


def walk() -> list[traceback.FrameSummary]:
    """The frames from `ng.train` to the optimiser's step, both included, the outermost first."""
    original = Optimizer.step
    x = np.arange(8, dtype=np.float32).reshape(4, 2)

    def train() -> None:
        ng.train((x, [0, 1, 0, 1]), "ce", "linear", {"epochs": 1}, device="cpu")

    def arrive(optimizer: Optimizer) -> None:
        raise Arrived

    train()  # a process's first run tries torch's kernels out, which are steps too
    Optimizer.step = arrive  # type: ignore[method-assign]
    try:
        train()
    except Arrived as error:
        frames = traceback.extract_tb(error.__traceback__)
        return [frame for frame in frames if frame.filename != __file__ or frame.name == "arrive"]
    finally:
        Optimizer.step = original  # type: ignore[method-assign]
    raise SystemExit("no update was made")


def main() -> int:
    frames = walk()
    for number, frame in enumerate(frames, 1):
        file = frame.filename.partition("src/")[2] or frame.filename
        name = "Optimizer.step" if frame.name == "arrive" else frame.name
        print(f"{number:3} {name:16} {file}:{frame.lineno}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
