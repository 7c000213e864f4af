"""Costs mixed across labels: smoothing, smearing, corrections by a transition matrix."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from noisegate.errors import InputError, is_real
from noisegate.noise.base import check_matrix
from noisegate.objectives.base import Objective
from noisegate.objectives.cross_entropy import CrossEntropy
from noisegate.objectives.upsampled import Size

#: What a matrix may be given as; nested lists are what `settings()` holds.
MatrixLike = Tensor | npt.NDArray[Any] | Sequence[Sequence[float]]
#: What a base objective may be given as; None is cross-entropy.
BaseLike = Objective | Mapping[str, Any] | None
#: Where the rows of a matrix have entries, and the logarithms of these: see `support`.
Support = tuple[Tensor, Tensor]

#: Rows of a transition matrix may be off by this much (float32, rounded tables); they are then
#: normalised.
ROW_SUM_TOLERANCE = 1e-4
#: A transition matrix with a larger condition number is not inverted.
MAX_CONDITION = 1e4
#: The log-probability of a label that the transition matrix says never occurs: log of the least
#: normal float32.
LOG_IMPOSSIBLE = math.log(torch.finfo(torch.float32).tiny)
#: With all entries at least this large, a mixture of probabilities cannot underflow in float32.
_LEAST_ENTRY = 1e-20
#: How many numbers a chunk of the mixture in log space may hold.
_CHUNK = 2**22


def square_matrix(matrix: MatrixLike, n_classes: int, what: str) -> npt.NDArray[np.float64]:
    """Return `matrix` as a finite float64 array (K, K); raise InputError if it is not one."""
    try:
        content = matrix.detach().cpu().numpy() if isinstance(matrix, Tensor) else matrix
        values = np.array(content, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{what} must be an array of {n_classes} x {n_classes} numbers") from None
    if values.shape != (n_classes, n_classes):
        raise InputError(f"{what} must have shape ({n_classes}, {n_classes}), got {values.shape}")
    if not np.isfinite(values).all():
        i, j = np.argwhere(~np.isfinite(values))[0]
        raise InputError(f"{what} must be finite, got {values[i, j]} at row {i}, column {j}")
    return values


def transition_matrix(transition: MatrixLike, n_classes: int) -> Tensor:
    """Check a transition matrix; return it as a float64 tensor (K, K) whose rows sum to one.

    Rows may miss one by up to 1e-4; they are then divided by their sum.

    >>> transition_matrix([[0.9, 0.10001], [0.2, 0.8]], 2).sum(1)
    tensor([1., 1.], dtype=torch.float64)
    """
    values = square_matrix(transition, n_classes, "transition")
    sums = values.sum(axis=1, keepdims=True)
    off = float(np.abs(sums - 1).max())
    if 1e-12 < off <= ROW_SUM_TOLERANCE:
        values = values / sums
    return torch.tensor(check_matrix(values))


def inverse_transition(transition: Tensor, ridge: float = 0.0) -> Tensor:
    """inv((T + r I) / (1 + r)); raise InputError if T is too ill-conditioned.

    With a ridge r the matrix inverted is a mixture of T and the identity, which is still a
    transition matrix, so the rows of the inverse still sum to one.

    >>> inverse_transition(torch.tensor([[0.55, 0.45], [0.45, 0.55]]).double())
    tensor([[ 5.5000, -4.5000],
            [-4.5000,  5.5000]], dtype=torch.float64)
    """
    if not (is_real(ridge) and ridge >= 0):
        raise InputError(f"ridge must be a number that is not negative, got {ridge!r}")
    mixed = (transition + ridge * torch.eye(len(transition), dtype=transition.dtype)) / (1 + ridge)
    condition = float(np.linalg.cond(mixed.numpy()))
    if not condition <= MAX_CONDITION:
        remedy = (
            f"a ridge other than {ridge:g}" if ridge else "ridge=0.1, say, which inverts (T + 0.1 I) / 1.1"
        )
        raise InputError(
            f"transition cannot be inverted: its condition number is {condition:.3g}, at most "
            f"{MAX_CONDITION:g} is accepted; use {remedy}, or ForwardCorrection, which does not invert it"
        )
    return torch.linalg.inv(mixed)


def base_objective(base: BaseLike, n_classes: int) -> Objective:
    """Resolve a base objective: None is cross-entropy; a mapping is the result of `to_dict`."""
    if base is None:
        return CrossEntropy(n_classes)
    found = Objective.from_dict(base) if isinstance(base, Mapping) else base
    if not isinstance(found, Objective):
        raise InputError(f"base must be an objective (an instance, not a class), got {base!r}")
    if found.n_classes != n_classes:
        raise InputError(f"base is for {found.n_classes} classes, expected {n_classes}")
    return found


def mix(matrix: Tensor, values: Tensor) -> Tensor:
    """sum_j matrix[i, j] values[:, j]: `(K, K)` and `(B, K, ...)` -> `(B, K, ...)`, never in half precision."""
    with torch.autocast(values.device.type, enabled=False):
        return torch.einsum("ij,bj...->bi...", matrix.to(values.dtype), values)


class _LogMixture(torch.autograd.Function):
    """log sum_i T[i, j] exp(log_p[n, i]) of every label j, `(N, K)` -> `(N, K)`, over the entries T has.

    `from_clean` and `to_label` are the `support` of T' and of T; the second serves the backward
    pass, so that both passes gather and neither scatters. Plain autograd would keep all summands;
    here they are made again.
    """

    @staticmethod
    def forward(ctx: Any, log_p: Tensor, from_clean: Support, to_label: Support) -> Tensor:
        mixture = torch.cat(
            [(log_p[:, index] + logs).logsumexp(2) for index, logs in _chunks(log_p, *from_clean)], dim=1
        )
        ctx.save_for_backward(log_p, mixture, *to_label)
        return mixture

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        log_p, mixture, *to_label = ctx.saved_tensors
        parts, start = [], 0
        for index, logs in _chunks(log_p, *to_label):
            own = log_p[:, start : start + len(index), None]
            parts.append(((own + logs - mixture[:, index]).exp() * gradient[:, index]).sum(2))
            start += len(index)
        return torch.cat(parts, dim=1), None, None


def support(matrix: Tensor) -> Support:
    """Where each row of a matrix (K, K) is not zero, and the logarithms there: two tensors (K, m).

    m is the largest number of entries of a row; shorter rows end in entries of -inf.

    >>> support(torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], [0.0, 0.0, 1.0]]))[0][1]
    tensor([0, 2])
    """
    entries = int((matrix != 0).sum(1).max())
    index = (matrix == 0).int().argsort(dim=1, stable=True)[:, :entries]
    return index, matrix.gather(1, index).log()


def _chunks(log_p: Tensor, index: Tensor, logs: Tensor) -> Iterator[Support]:
    """Some rows of a support at a time, so that their summands over all N examples stay few."""
    rows = max(1, _CHUNK // max(1, len(log_p) * index.shape[1]))
    return zip(index.split(rows), logs.to(log_p.dtype).split(rows), strict=True)


class Channel(nn.Module):
    """The effect of class-conditional noise on probabilities, p -> T'p, in log space.

    Parameters
    ----------
    transition : float64 tensor (K, K)
        T[i, j] = P(observed j | clean i), rows sum to one; kept as it is, cast where it is used.

    Notes
    -----
    If all entries of T are positive the most probable class reaches every label: after one shift no
    sum underflows, and a matrix product does. Otherwise sums run in log space over the entries that
    are not zero.

    A label whose column of T is zero cannot be observed under T. Should it be observed all the
    same, it tells nothing about the clean class: its log-probability is the constant
    `LOG_IMPOSSIBLE`, without a gradient.

    >>> channel = Channel(torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.5, 0.5]]).double())
    >>> channel(torch.tensor([[0.5, 0.25, 0.25]]).log()).exp()
    tensor([[0.2500, 0.6250, 0.1250]])
    """

    transition: Tensor
    columns: Tensor
    never: Tensor
    clean_index: Tensor
    clean_logs: Tensor
    label_index: Tensor
    label_logs: Tensor

    def __init__(self, transition: Tensor) -> None:
        super().__init__()
        self.register_buffer("transition", transition)
        self._prepare()

    def _prepare(self) -> None:
        """Precompute the transpose of T or, if T has zeros, the supports of T and T'."""
        columns = self.transition.T.contiguous()
        self.bounded = bool(columns.min() >= _LEAST_ENTRY)
        derived: dict[str, Tensor | None] = dict.fromkeys(
            ("columns", "never", "clean_index", "clean_logs", "label_index", "label_logs")
        )
        if self.bounded:
            derived["columns"] = columns
        else:
            derived["never"] = never = (columns == 0).all(1)
            derived["clean_index"], logs = support(columns)
            # Any finite number will do where the result is not used, to keep NaN out of the
            # gradient.
            derived["clean_logs"] = torch.where(never.unsqueeze(1), torch.zeros_like(logs), logs)
            derived["label_index"], derived["label_logs"] = support(self.transition)
        for name, value in derived.items():
            self.register_buffer(name, value, persistent=False)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._prepare()

    def forward(self, log_p: Tensor) -> Tensor:
        """log T'p of every label: `(B, K, ...)` -> `(B, K, ...)`."""
        if self.bounded:
            peak = log_p.detach().amax(1, keepdim=True)
            return mix(self.columns, (log_p - peak).exp()).log() + peak
        flat = log_p.movedim(1, -1)
        from_clean, to_label = (self.clean_index, self.clean_logs), (self.label_index, self.label_logs)
        mixture = _LogMixture.apply(flat.reshape(-1, flat.shape[-1]), from_clean, to_label)
        known = torch.where(self.never, mixture.new_full((), LOG_IMPOSSIBLE), mixture)
        return known.view(flat.shape).movedim(-1, 1)

    def label(self, log_p: Tensor, targets: Tensor) -> Tensor:
        """log (T'p)_y of given labels: `(B, K, ...)`, `(B, ...)` -> `(B, ...)`, in O(B K)."""
        if self.bounded:
            peak = log_p.detach().amax(1, keepdim=True)
            column = self.columns[targets].to(log_p.dtype).movedim(-1, 1)
            return ((log_p - peak).exp() * column).sum(1).log() + peak.squeeze(1)
        entries = log_p.gather(1, self.clean_index[targets].movedim(-1, 1))
        logs = self.clean_logs[targets].to(log_p.dtype).movedim(-1, 1)
        mixture = torch.logsumexp(entries + logs, dim=1)
        return torch.where(self.never[targets], mixture.new_full((), LOG_IMPOSSIBLE), mixture)


class LabelSmoothing(Objective):
    """Label smoothing: cross-entropy against (1 - alpha) onehot(y) + alpha / K.

        cost_y = (1 - alpha) (-log p_y) + alpha / K sum_j (-log p_j),    p = softmax(f)

    Parameters
    ----------
    n_classes : int
        Number of classes K; the network gives K outputs.
    alpha : float
        In [0, 1]. 0 is cross-entropy, 1 ignores the labels. A tuning parameter: under label noise,
        values well above the share of wrong labels often do best (Figure 2 of the paper sweeps it).

    References
    ----------
    Lukasik, Bhojanapalli, Menon, Kumar. Does label smoothing mitigate label noise? ICML 2020.

    Examples
    --------
    >>> import torch, noisegate as ng
    >>> objective = ng.LabelSmoothing(3, alpha=0.3)
    >>> objective(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
    tensor(0.6395)
    """

    ranks_by_outputs: ClassVar[bool] = True
    summary: ClassVar[str] = "label smoothing: labels mixed with the uniform distribution"

    def __init__(self, n_classes: int, alpha: float = 0.1, **shared: Any) -> None:
        super().__init__(n_classes, **shared)
        if not (is_real(alpha) and 0 <= alpha <= 1):
            raise InputError(f"alpha must lie in [0, 1], got {alpha!r}")
        self.alpha = alpha

    def log_probs(self, outputs: Tensor) -> Tensor:
        return F.log_softmax(self.check_outputs(outputs), dim=1)

    def costs(self, outputs: Tensor) -> Tensor:
        log_p = self.log_probs(outputs)
        return (self.alpha - 1) * log_p - self.alpha * log_p.mean(1, keepdim=True)

    def label_costs(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, reduction="none", label_smoothing=self.alpha)


class _OverBase:
    """What an objective over another one leaves to that: outputs and probabilities."""

    base: Objective
    n_classes: int

    def init_head_(self, layer: nn.Module) -> None:
        self.base.init_head_(layer)

    def resized(self, outputs: Tensor, size: Size) -> Any:
        return self.base.resized(outputs, size)

    def probs_and_variance(self, outputs: Tensor, size: Size | None = None) -> tuple[Tensor, Tensor]:
        return self.base.probs_and_variance(outputs, size)

    def log_probs(self, outputs: Tensor) -> Tensor:
        return self.base.log_probs(outputs)

    def most_probable(self, outputs: Tensor) -> Tensor:
        return self.base.most_probable(outputs)

    def extra_repr(self) -> str:
        return f"n_classes={self.n_classes}"


class LabelSmearing(_OverBase, Objective):
    """Label smearing: the cost of a label is a mixture, by a matrix M, of the costs of all labels.

        cost_y = sum_j M[y, j] l_j(f)

    Standard training is M = I, label smoothing M = (1 - a) I + a/K J (all ones), backward
    correction M = inv(T); for symmetric noise that is I / (1 - a) - a / ((1 - a) K) J (table 1 of
    the paper).

    Parameters
    ----------
    n_classes : int
        Number of classes K.
    matrix : array (K, K)
        M; any finite numbers, also negative ones. Row y belongs to the given label.
    base : Objective, optional
        Gives the costs l; cross-entropy by default. It also decides on the outputs and the
        probabilities. Its own weight, ignore_index and reduction are not used.

    References
    ----------
    Lukasik, Bhojanapalli, Menon, Kumar. Does label smoothing mitigate label noise? ICML 2020,
    section 3.1.

    Examples
    --------
    >>> import torch, noisegate as ng
    >>> objective = ng.LabelSmearing(3, 0.7 * torch.eye(3) + 0.1)
    >>> objective(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
    tensor(0.6395)
    """

    summary: ClassVar[str] = "label smearing: costs mixed across labels by any matrix"
    matrix: Tensor

    def __init__(self, n_classes: int, matrix: MatrixLike, base: BaseLike = None, **shared: Any) -> None:
        super().__init__(n_classes, **shared)
        self.base = base_objective(base, self.n_classes)
        self.slices = self.base.slices
        self.register_buffer("matrix", torch.tensor(square_matrix(matrix, self.n_classes, "matrix")))

    def costs(self, outputs: Tensor) -> Tensor:
        return mix(self.matrix, self.base.costs(outputs))

    def label_costs(self, outputs: Tensor, targets: Tensor) -> Tensor:
        costs = self.base.costs(outputs)
        return (costs * self.matrix[targets].to(costs.dtype).movedim(-1, 1)).sum(1)


class BackwardCorrection(LabelSmearing):
    """Backward correction: costs mixed by inv(T), whose expectation under the noise is clean.

        cost_y = sum_j inv(T)[y, j] l_j(f),        sum_j T[i, j] cost_j = l_i

    The correction is unbiased, but entries of inv(T) are negative: so can the loss be, without a
    lower bound.

    Parameters
    ----------
    n_classes : int
        Number of classes K.
    transition : array (K, K)
        T[i, j] = P(observed j | clean i); rows sum to one.
    base : Objective, optional
        Gives the costs l; cross-entropy by default. Its own weight, ignore_index and reduction are
        not used.
    ridge : float
        Not negative. inv((T + ridge I) / (1 + ridge)) takes the place of inv(T): biased towards no
        correction, with smaller entries. A matrix whose condition number exceeds 10,000 is refused
        (T is singular at 50 % flips between two classes, and at 45 % its condition number is 10).

    Notes
    -----
    Probabilities are about the clean class; `observed_log_probs` is log T'p.

    References
    ----------
    Patrini, Rozza, Menon, Nock, Qu. Making deep neural networks robust to label noise: a loss
    correction approach. CVPR 2017.

    Examples
    --------
    >>> import torch, noisegate as ng
    >>> objective = ng.BackwardCorrection(2, [[0.75, 0.25], [0.25, 0.75]])
    >>> objective.matrix
    tensor([[ 1.5000, -0.5000],
            [-0.5000,  1.5000]], dtype=torch.float64)
    >>> objective(torch.tensor([[5.0, -5.0]]), torch.tensor([0]))
    tensor(-5.0000)
    """

    summary: ClassVar[str] = "backward correction: unbiased costs by the inverse of the transition matrix"

    def __init__(
        self,
        n_classes: int,
        transition: MatrixLike,
        base: BaseLike = None,
        ridge: float = 0.0,
        **shared: Any,
    ) -> None:
        checked = transition_matrix(transition, n_classes)
        super().__init__(n_classes, inverse_transition(checked, ridge), base, **shared)
        self.channel = Channel(checked)
        self.ridge = ridge

    @property
    def transition(self) -> Tensor:
        """T, float64 (K, K)."""
        return self.channel.transition

    def observed_log_probs(self, outputs: Tensor) -> Tensor:
        return self.channel(self.log_probs(outputs))


class ForwardCorrection(_OverBase, Objective):
    """Forward correction: cross-entropy of the clean-class probabilities passed through T.

        cost_y = -log sum_i T[i, y] p_i

    The minimiser of the expected cost under the noise is the clean p. T is applied to
    probabilities: a label that T explains as noise costs a bounded amount (-log(a/2) for two
    classes and T = (1 - a) I + a/2 J).

    Parameters
    ----------
    n_classes : int
        Number of classes K.
    transition : array (K, K)
        T[i, j] = P(observed j | clean i); rows sum to one. Its inverse is not needed.
    base : Objective, optional
        Gives the probabilities p; cross-entropy, that is softmax, by default. Its costs, weight,
        ignore_index and reduction are not used.

    Notes
    -----
    Everything is computed in log space: T = I is cross-entropy exactly, at any logits. A label y
    costs O(K). The costs of all labels are one matrix product where all entries of T are positive.
    Otherwise they take time in proportion to the largest number of entries of a column of T, and
    hold a few million summands at once: quick for flips between few classes, slow for a large T of
    many entries and some zeros.

    A label whose column of T is zero can never be observed under T. If it is, it costs the constant
    87.3 (the negative log of the least normal float32) and has no gradient, since T says nothing
    about where it is from.

    `log_probs` is about the clean class, `observed_log_probs` is log T'p.

    References
    ----------
    Patrini, Rozza, Menon, Nock, Qu. Making deep neural networks robust to label noise: a loss
    correction approach. CVPR 2017.

    Examples
    --------
    >>> import torch, noisegate as ng
    >>> objective = ng.ForwardCorrection(2, [[0.75, 0.25], [0.25, 0.75]])
    >>> objective(torch.tensor([[-1e4, 1e4]]), torch.tensor([0]))  # log 4: it saturates
    tensor(1.3863)
    """

    summary: ClassVar[str] = "forward correction: predictions passed through the transition matrix"

    def __init__(self, n_classes: int, transition: MatrixLike, base: BaseLike = None, **shared: Any) -> None:
        super().__init__(n_classes, **shared)
        self.base = base_objective(base, self.n_classes)
        self.slices = self.base.slices
        self.channel = Channel(transition_matrix(transition, self.n_classes))

    @property
    def transition(self) -> Tensor:
        """T, float64 (K, K)."""
        return self.channel.transition

    def observed_log_probs(self, outputs: Tensor) -> Tensor:
        return self.channel(self.log_probs(outputs))

    def costs(self, outputs: Tensor) -> Tensor:
        return -self.observed_log_probs(outputs)

    def label_costs(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return -self.channel.label(self.log_probs(outputs), targets)
