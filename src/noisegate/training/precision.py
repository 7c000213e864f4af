"""Precision of computations and number of CPU threads.

Both are settings of the whole process, so runs in several threads take turns (`noisegate._turns`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from noisegate._turns import TURN


@contextlib.contextmanager
def precision(name: str) -> Iterator[None]:
    """Inside, convolutions and matrix products are computed as a recipe's `precision` says.

    fp32 turns TF32 off and chooses deterministic cuDNN algorithms, so that results on a GPU are
    repeatable. This costs small convolutions time: a LeNet's step takes 1.6 times as long.

    Parameters
    ----------
    name : {"fp32", "tf32", "bf16"}
        bf16 also allows TF32; the training step adds the autocast.
    """
    cudnn: Any = torch.backends.cudnn
    with TURN:
        exact, before = name == "fp32", (cudnn.deterministic, cudnn.benchmark)
        with _tensor_float(not exact):
            cudnn.deterministic = before[0] or exact
            cudnn.benchmark = not cudnn.deterministic
            try:
                yield
            finally:
                cudnn.deterministic, cudnn.benchmark = before


@contextlib.contextmanager
def _tensor_float(allowed: bool) -> Iterator[None]:
    """Inside, TF32 is allowed or not.

    torch has an old and a new set of switches and refuses to mix them: use the set that the caller
    uses.
    """
    backends: Any = torch.backends
    try:
        before = torch.get_float32_matmul_precision(), backends.cudnn.allow_tf32
    except RuntimeError:  # the caller has used the new switches
        switches = backends.cuda.matmul, backends.cudnn.conv
        names = [switch.fp32_precision for switch in switches]
        for switch in switches:
            switch.fp32_precision = "tf32" if allowed else "ieee"
        try:
            yield
        finally:
            for switch, given in zip(switches, names, strict=True):
                switch.fp32_precision = given
        return
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        backends.cudnn.allow_tf32 = before[1]


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Inside, torch computes with one thread, so that sums are taken in a fixed order."""
    with TURN:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)
