"""How numbers are computed: their precision, and the threads that compute them.

Both are settings of the whole process, so they are changed by turns (`noisegate._turns`).
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

    fp32 is exact and adds in a fixed order; tf32 and bf16 are fast. So fp32 is repeatable on a GPU,
    and small convolutions pay for it: a LeNet's step takes 1.6 times as long.
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
    """Inside, TF32 is used or not. Of torch's two sets of switches the one the caller uses is set."""
    backends: Any = torch.backends
    try:
        before = torch.get_float32_matmul_precision(), backends.cudnn.allow_tf32
    except RuntimeError:  # torch refuses a mix of both
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
    """Inside, torch computes with one thread, so that sums keep their order."""
    with TURN:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)
