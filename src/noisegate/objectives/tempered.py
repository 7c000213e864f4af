"""The tempered softmax and the bi-tempered cost, with gradients written by hand."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

#: On a CPU, numbers in a block of rows that is worked on at once, so that it stays in the cache.
CACHED = 2**17
LOG_2 = math.log(2)
#: From this distance of t from 1 on rounding 1 + x to float32 before its logarithm does no harm.
FAR_FROM_ONE = 0.2


def expm1(x: Tensor) -> Tensor:
    """exp(x) - 1 for x <= 0, with all digits of its gradient.

    torch derives expm1 as its result + 1, which rounds exp(x) to 0 well before exp(x) itself
    underflows.
    """
    return torch.where(x < -1, x.exp() - 1, torch.expm1(x))


def tempered_log(log_p: Tensor, t: float) -> Tensor:
    """log_t p = (p^(1-t) - 1) / (1 - t) from log p, for t <= 1; the logarithm for t = 1.

    >>> tempered_log(torch.tensor([0.25, 0.0]).log(), 0.5)
    tensor([-1., -2.])
    """
    return log_p if t == 1 else expm1((1 - t) * log_p) / (1 - t)


def tempered_log_softmax(logits: Tensor, t: float) -> Tensor:
    """Log of the tempered softmax exp_t(f_i - lambda) over dim 1; lambda makes the sum 1.

    Parameters
    ----------
    logits : tensor (B, K, ...)
    t : float
        In [0, 5]. 1 is log-softmax; above it tails are heavy; below it small logits have
        probability 0 (their logarithm is -inf, without a gradient).

    Notes
    -----
    exp_t(x) = max(0, 1 + (1 - t) x)^(1 / (1 - t)). Let S(lambda) be the sum of the tempered
    exponentials, and E = sum p^t. G = S^(1 - t) is concave (t > 1) or convex (t < 1) and nearly
    linear in lambda, so Newton's steps on G = 1, lambda += S (S^(t - 1) - 1) / ((t - 1) E), rise
    from the largest logit to the root without passing it, and double their digits at every step; for
    t > 1 Halley's, which also have S'', treble them. Their number is fixed, see `passes`. The gradient
    is that of the implicit function: d lambda / d f_j = p_j^t / E. There is no double backward.

    >>> tempered_log_softmax(torch.tensor([[0.0, -1.0]]), 2.0).exp().sum()
    tensor(1.)
    """
    return F.log_softmax(logits, dim=1) if t == 1 else _TemperedLogSoftmax.apply(logits, t)


def tempered_label_costs(logits: Tensor, labels: Tensor, t1: float, t2: float) -> Tensor:
    """The bi-tempered cost of integer labels `(B, ...)`, for t2 other than 1.

    The gradient is made in the forward: with r = p^(t2 - 1) and E = sum p^t2 it is

        p_k^(1 - t1) p_k r_k - onehot(y)_k p_y^(t2 - t1) - c p_k r_k / E,

    where c makes the sum over k zero.

    >>> tempered_label_costs(torch.tensor([[3.0, 0.0, 0.0]]), torch.tensor([0]), 0.5, 2.0)
    tensor([0.2357])
    """
    return _LabelCosts.apply(logits, labels, t1, t2, torch.is_grad_enabled() and logits.requires_grad)


def passes(t: float, n_classes: int, dtype: torch.dtype) -> int:
    """Number of steps before the last one, enough for the hardest rows found.

    Those were rows of 2 to 21,843 logits: normal, uniform, Cauchy, geometric, of one or two levels,
    up to 1e12. What decides for t > 1 is the range of lambda, (t - 1) log K.

    >>> passes(1.3, 10, torch.float32), passes(1.3, 1000, torch.float32), passes(2.0, 1000, torch.float64)
    (2, 3, 6)
    """
    if t < 1:  # Newton's, from the largest logit
        return (6 if t >= 0.65 else 13) - (dtype == torch.float32)
    width = (t - 1) * math.log(n_classes)
    steps = 1 if width < 0.3 else 2 + int(min(width, 10) / 2)
    return steps + (dtype != torch.float32)


class _TemperedLogSoftmax(torch.autograd.Function):
    """`tempered_log_softmax`."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, t: float) -> Tensor:
        parts = [_solved(block, t) for block in _blocks(logits)]
        log_p, power = (torch.cat(each) if len(each) > 1 else each[0] for each in zip(*parts, strict=True))
        log_p *= LOG_2
        ctx.save_for_backward(log_p, power)
        return log_p

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        log_p, power = ctx.saved_tensors
        # Where p is 0 nothing flows, whatever comes in.
        through = torch.where(power != 0, grads[0] * power, power)
        escort = log_p.exp() * power
        escort /= escort.sum(1, keepdim=True)
        return through - escort * through.sum(1, keepdim=True), None


class _LabelCosts(torch.autograd.Function):
    """`tempered_label_costs`."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, t1: float, t2: float, gradient: bool) -> Tensor:
        blocks = zip(_blocks(logits), _blocks(labels, logits), strict=True)
        parts = [_label_costs(*block, t1, t2, gradient) for block in blocks]
        costs, gradients = ([part[place] for part in parts] for place in (0, 1))
        if gradient:
            ctx.save_for_backward(torch.cat(gradients) if len(gradients) > 1 else gradients[0])
        return torch.cat(costs) if len(costs) > 1 else costs[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.saved_tensors[0] * grads[0].unsqueeze(1), None, None, None, None


def _blocks(x: Tensor, like: Tensor | None = None) -> tuple[Tensor, ...]:
    """Rows of `x`, as many at once as those of `like` that stay in the cache; on a GPU all of them."""
    like = x if like is None else like
    if like.device.type != "cpu" or torch.compiler.is_compiling() or not like.numel():
        return (x,)
    return x.split(max(1, CACHED * len(like) // like.numel()))


def _label_costs(logits: Tensor, labels: Tensor, t1: float, t2: float, gradient: bool) -> tuple[Tensor, Any]:
    """Costs of labels and, if asked for, their gradients."""
    # On a CPU exp2 takes a quarter of the time of exp.
    logs, power = _solved(logits, t2)
    index = labels.unsqueeze(1)
    given = logs.gather(1, index) * LOG_2
    weight = ((1 - t1) * logs).exp2_() if t1 != 1 else torch.ones_like(logs)
    p = logs.exp2_()
    spread = torch.zeros_like(given) if t1 == 1 else ((weight * p).sum(1, keepdim=True) - 1) / (2 - t1)
    costs = (spread - tempered_log(given, t1)).squeeze(1)
    if not gradient:
        return costs, None
    escort = p.mul_(power)
    own = torch.where(given > -math.inf, (t2 - t1) * given, given).exp()
    # expm1 because p_y^(t2 - t1) (p_y - 1) cancels where the label is nearly certain.
    found = weight.mul_(escort).scatter_(1, index, own * given.expm1())
    share = found.sum(1, keepdim=True) / escort.sum(1, keepdim=True)
    return costs, found.addcmul_(escort, share, value=-1)


@torch.no_grad()
def _solved(logits: Tensor, t: float) -> tuple[Tensor, Tensor]:
    """log2 p of the tempered softmax, and p^(t - 1), which is 0 where p is.

    All but the last step need not have all digits: log for log1p, which takes four times as long.
    Of float32 log has them too where t is far from 1: the error of log p is below 6e-8 / |t - 1|.
    """
    depth = (logits.amax(1, keepdim=True) - logits).mul_(t - 1)
    bases = depth + 1
    shift = (_risen if t < 1 else _risen_fast)(bases, t)
    if depth.dtype == torch.float32 and abs(t - 1) >= FAR_FROM_ONE:
        base = bases.add_(shift)
        logs = (base.clamp_(min=0) if t < 1 else base).log2().mul_(1 / (1 - t))
    else:
        depth.add_(shift)
        logs = (depth.clamp_(min=-1) if t < 1 else depth).log1p().mul_(1 / ((1 - t) * LOG_2))
        base = depth.add_(1)
    p = logs.exp2()
    total = p.sum(1, keepdim=True)
    if t < 1:  # where p is 0
        base.clamp_(min=torch.finfo(base.dtype).tiny)
    step = total * torch.expm1((t - 1) * total.log()) / p.div_(base).sum(1, keepdim=True)
    # The logarithm at the middle of the step, and p^(t - 1) at its end, have all digits: it is small.
    half = 0.5 * step
    power = base.add_(half).reciprocal_()
    if t < 1:
        power.masked_fill_(logs == -math.inf, 0)
    logs.addcmul_(power, step / ((t - 1) * LOG_2), value=-1)
    return logs, power.addcmul_(power.square(), half, value=-1)


def _risen(bases: Tensor, t: float) -> Tensor:
    """(t - 1) (lambda - largest logit), `(B, 1, ...)`, by Newton's steps.

    `bases` is p^(1 - t) where lambda is the largest logit.
    """
    shift, base = torch.zeros_like(bases[:, :1]), torch.empty_like(bases)
    for _ in range(passes(t, bases.shape[1], bases.dtype)):
        torch.add(bases, shift, out=base).clamp_(min=0)
        p = base.log().mul_(1 / (1 - t)).exp_()
        total = p.sum(1, keepdim=True)
        slope = p.div_(base.clamp_(min=torch.finfo(base.dtype).tiny)).sum(1, keepdim=True)
        shift.addcdiv_(total.pow(t).sub_(total), slope)
    return shift


def _risen_fast(bases: Tensor, t: float) -> Tensor:
    """`_risen` for t > 1, by Halley's steps.

    They start from the lambda of a row whose logits are all the mean, below which the root cannot lie
    because exp_t is convex.
    """
    k = bases.shape[1]
    shift = (k ** (t - 1) - bases.mean(1, keepdim=True)).clamp_(min=0)
    base, p = torch.empty_like(bases), torch.empty_like(bases)
    for _ in range(passes(t, k, bases.dtype)):
        torch.add(bases, shift, out=base)
        torch.log2(base, out=p).mul_(1 / (1 - t)).exp2_()
        total = p.sum(1, keepdim=True)
        slope = p.div_(base).sum(1, keepdim=True)
        bend = p.div_(base).sum(1, keepdim=True)
        step = total.pow(t).sub_(total).div_(slope)
        # Newton's step by the bend of G: its second derivative is negative, so rising steps get longer.
        bend = (slope / total - bend / slope).mul_(step).mul_(t / (2 * (t - 1))).add_(1).clamp_(min=0.5)
        shift.addcdiv_(step, bend).clamp_(min=0)
    return shift
