"""A guard against operations that a CUDA graph cannot hold; it works on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, bool, uint8
from torch.utils._python_dispatch import TorchDispatchMode

#: Operations that read a tensor's values on the host, or whose result has a shape that depends on
#: values.
REFUSED = frozenset(
    {
        "_assert_async",
        "_local_scalar_dense",
        "_unique2",
        "bincount",
        "equal",
        "histc",
        "is_nonzero",
        "masked_select",
        "nonzero",
        "nonzero_static",
        "repeat_interleave",
        "unique_consecutive",
        "unique_dim",
    }
)


class CaptureGuard(TorchDispatchMode):
    """Refuse operations that cannot be captured, and record every other one with the shapes of its results.

    Attributes
    ----------
    seen : list of (str, list of tuple)
        Name and result shapes of each operation. Two steps that are captured alike have the same
        list.

    >>> import torch
    >>> with CaptureGuard() as guard:
    ...     _ = torch.zeros(3).exp()
    >>> guard.seen
    [('zeros', [(3,)]), ('exp', [(3,)])]
    >>> with CaptureGuard():
    ...     torch.zeros(3).sum().item()
    Traceback (most recent call last):
    AssertionError: _local_scalar_dense cannot be captured in a CUDA graph: ...
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, list[tuple[int, ...]]]] = []

    def __torch_dispatch__(
        self,
        function: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        name = function.overloadpacket.__name__
        if name in REFUSED or (name in ("index", "index_put_", "index_put") and _has_mask(args[1])):
            raise AssertionError(
                f"{name} cannot be captured in a CUDA graph: it reads values on the host, or its shape depends on "
                "them; multiply by a mask, or use torch.where"
            )
        result = function(*args, **(kwargs or {}))
        outputs = result if isinstance(result, tuple | list) else [result]
        self.seen.append((name, [tuple(o.shape) for o in outputs if isinstance(o, Tensor)]))
        return result


def _has_mask(indices: Any) -> Any:
    """Whether one of the indices is a mask: how many elements it selects is only known from its values."""
    return any(isinstance(index, Tensor) and index.dtype in (bool, uint8) for index in indices)


def operations(step: Callable[[], object]) -> list[tuple[str, list[tuple[int, ...]]]]:
    """Run `step` under the guard; return the operations that it made."""
    with CaptureGuard() as guard:
        step()
    return guard.seen
