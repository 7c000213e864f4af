"""A forest of decision trees stored as tensors; it has no gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from noisegate.errors import InputError

#: Lower limit of probabilities, so that their logs are finite.
FLOOR = 1e-6


class Forest(nn.Module):
    """Log of the mean class probabilities of many decision trees, `(B, d)` -> `(B, K)`.

    One table holds the nodes of all trees. A row starts at the root of every tree. At each node it
    moves to `left` if its feature is at most the threshold, else to `right`. A leaf points to
    itself, so after `depth` moves the row has reached a leaf of every tree.

    Parameters
    ----------
    n_trees, n_nodes, n_leaves : int
        Totals over the forest.
    n_outputs : int
        Number of classes K.
    depth : int
        Depth of the deepest tree.

    Notes
    -----
    Features are compared in float32, as in scikit-learn's trees.
    """

    kind: ClassVar[str] = "forest"
    roots: Tensor
    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    leaf: Tensor
    shares: Tensor

    def __init__(self, n_trees: int, n_nodes: int, n_leaves: int, n_outputs: int, depth: int) -> None:
        super().__init__()
        if not isinstance(depth, int) or not 0 <= depth <= max(n_nodes, 1):
            raise InputError(
                f"the depth of trees must lie between 0 and their {n_nodes} nodes, got {depth!r}"
            )
        self.depth = depth
        for name, size in (
            ("roots", n_trees),
            *((n, n_nodes) for n in ("feature", "left", "right", "leaf")),
        ):
            self.register_buffer(name, torch.zeros(size, dtype=torch.int64))
        self.register_buffer("threshold", torch.zeros(n_nodes, dtype=torch.float64))
        self.register_buffer("shares", torch.zeros(n_leaves, n_outputs))

    @classmethod
    def from_sklearn(cls, forest: Any, n_outputs: int) -> Forest:
        """Convert a fitted scikit-learn forest whose classes are integers in 0..n_outputs-1."""
        return cls.from_trees([each.tree_ for each in forest.estimators_], forest.classes_, n_outputs)

    @classmethod
    def from_trees(cls, trees: Sequence[Any], classes: npt.ArrayLike, n_outputs: int) -> Forest:
        """Convert the `tree_` of scikit-learn's decision trees, whose columns are the integers `classes`."""
        offsets = np.cumsum([0, *(tree.node_count for tree in trees)])
        leaves = np.concatenate([tree.children_left < 0 for tree in trees])
        columns = np.asarray(classes, dtype=np.int64)
        made = cls(
            len(trees),
            int(offsets[-1]),
            int(leaves.sum()),
            n_outputs,
            max(int(tree.max_depth) for tree in trees),
        )
        # Node numbers within a tree become rows of the table; leaves point to themselves.
        itself = np.arange(offsets[-1])
        for name in ("left", "right"):
            children = [
                getattr(tree, f"children_{name}") + start for tree, start in zip(trees, offsets, strict=False)
            ]
            getattr(made, name).copy_(torch.from_numpy(np.where(leaves, itself, np.concatenate(children))))
        feature = np.concatenate([tree.feature for tree in trees])
        made.feature.copy_(torch.from_numpy(np.where(leaves, 0, feature)))
        made.threshold.copy_(torch.from_numpy(np.concatenate([tree.threshold for tree in trees])))
        made.leaf.copy_(torch.from_numpy(np.where(leaves, np.cumsum(leaves) - 1, 0)))
        made.roots.copy_(torch.from_numpy(offsets[:-1]))
        counts = np.concatenate([tree.value[:, 0, :] for tree in trees])[leaves]
        made.shares[:, torch.from_numpy(columns)] = torch.from_numpy(
            counts / counts.sum(1, keepdims=True)
        ).float()
        return made

    def forward(self, x: Tensor) -> Tensor:
        compared = x.float()
        node = self.roots.expand(x.shape[0], -1)  # len(x) would be a constant in an exported program
        for _ in range(self.depth):
            goes_left = compared.gather(1, self.feature[node]) <= self.threshold[node]
            node = torch.where(goes_left, self.left[node], self.right[node])
        probs = self.shares[self.leaf[node]].to(x.dtype).mean(1)
        return probs.clamp_min(FLOOR).log()

    def spec(self) -> dict[str, Any]:
        """The kind of network and its constructor arguments, as plain data."""
        leaves, outputs = self.shares.shape
        sizes = {"n_trees": len(self.roots), "n_nodes": len(self.feature), "n_leaves": leaves}
        return {"kind": self.kind, **sizes, "n_outputs": outputs, "depth": self.depth}
