"""The tempered softmax and the bi-tempered cost, with gradients written by hand."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

#: On a CPU, numbers in a block of rows that is worked on at once, so that it stays in the cache.
CACHED = 2**18
LOG_2 = math.log(2)
#: The highest power of `_power_sums`.
MAX_POWER = 4


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
    from the largest logit to the root without passing it, and double their digits at every step. For
    t > 1 Halley's, which also have the second derivative of S, treble them; the last one has the third
    derivative too; and up to t = 2 steps without a logarithm come first, see `_by_powers`. The number
    of steps is fixed, see `passes`. The gradient is that of the implicit function: d lambda / d f_j =
    p_j^t / E. There is no double backward.

    >>> tempered_log_softmax(torch.tensor([[0.0, -1.0]]), 2.0).exp().sum().round(decimals=6)
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


def passes(t: float, n_classes: int, dtype: torch.dtype) -> tuple[int, int]:
    """How many steps of `_by_powers` and of Newton or Halley there are before the last one.

    Enough for the hardest rows found. Those were rows of 2 to 21,843 logits: normal, uniform, Cauchy,
    geometric, of one to three levels, up to 1e12. What decides for t > 1 is the range of lambda,
    (t - 1) log K.

    >>> passes(1.3, 100, torch.float32), passes(1.3, 1000, torch.float32), passes(2.0, 1000, torch.float64)
    ((2, 0), (3, 0), (3, 3))
    """
    double = dtype != torch.float32
    if t < 1:  # Newton's, from the largest logit
        return 0, (12 if t < 0.65 else 5) + double
    width = (t - 1) * math.log(n_classes)
    if t > 2:
        return 0, (1 if width < 0.3 else 2 + int(min(width, 10) / 2)) + double
    if t <= 1.3:  # below 1.2 the highest power is not near enough
        third, first = 1.4, (3.4 if t < 1.2 else 7) * (t - 1)
    else:
        third, first = 1.2, 1.7
    return 2 + (width > third), sum(width > each for each in (first, 4, 7)) + double


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
    # On a CPU exp2 takes a third of the time of exp.
    logs, power = _solved(logits, t2)
    index = labels.unsqueeze(1)
    given = logs.gather(1, index) * LOG_2
    if t1 + t2 == 2:  # as by default: p^(1 - t1) is p^(t2 - 1)
        weight = power
        escort = logs.exp2_().mul_(power)
        total = escort.sum(1, keepdim=True)
        spread = total
    else:
        weight = ((1 - t1) * logs).exp2_()
        p = logs.exp2_()
        spread = torch.linalg.vecdot(weight, p, dim=1).unsqueeze(1)
        escort = p.mul_(power)
        total = escort.sum(1, keepdim=True)
    if t1 == 1:
        costs = -given
    else:
        costs = (spread - 1) / (2 - t1) - torch.expm1((1 - t1) * given) / (1 - t1)
    costs = costs.squeeze(1)
    if not gradient:
        return costs, None
    own = (t2 - t1) * given
    if t2 < 1:
        own = torch.where(given > -math.inf, own, given)
    # expm1 because p_y^(t2 - t1) (p_y - 1) cancels where the label is nearly certain.
    found = weight.mul_(escort).scatter_(1, index, own.exp() * given.expm1())
    share = found.sum(1, keepdim=True) / total
    return costs, found.addcmul_(escort, share, value=-1)


@torch.no_grad()
def _solved(logits: Tensor, t: float) -> tuple[Tensor, Tensor]:
    """log2 p of the tempered softmax, and p^(t - 1), which is 0 where p is."""
    depth = (logits.amax(1, keepdim=True) - logits).mul_(t - 1)
    return (_solved_bounded if t < 1 else _solved_heavy)(depth, t)


def _solved_heavy(depth: Tensor, t: float) -> tuple[Tensor, Tensor]:
    """`_solved` for t > 1; `depth` is p^(1 - t) - 1 where lambda is the largest logit, and is overwritten."""
    n = 1 / (t - 1)
    by_powers, by_halley = passes(t, depth.shape[1], depth.dtype)
    # Few buffers, used again and again, stay in the cache of a CPU.
    base, p = torch.empty_like(depth), torch.empty_like(depth)
    if by_powers:
        level = _by_powers(depth, n, by_powers, base, p)
    else:
        # From the lambda of a row whose logits are all the mean: exp_t is convex, so the root is not below.
        level = (depth.shape[1] ** (t - 1) - depth.mean(1, keepdim=True)).clamp_(min=1)
    for _ in range(by_halley):
        torch.add(depth, level, out=base)
        torch.log2(base, out=p).mul_(-n).exp2_()
        level = level.add_(_step(p, base.reciprocal_(), n, 2)).clamp_(min=1)
    logs = torch.log1p(depth.add_(level.sub_(1)), out=p).mul_(-n / LOG_2)
    before = torch.reciprocal(depth.add_(1), out=base)
    p = logs.exp2()
    step = _step(p, before, n, 3)
    power = depth.add_(step).reciprocal_()
    # The integral of n / base over the step, by its values and slopes at both ends.
    apart = torch.sub(before, power, out=p).mul_(step)
    mean = before.add_(power).addcmul_(before, apart, value=-1 / 6)
    return logs.addcmul_(mean, step, value=-n / (2 * LOG_2)), power


def _step(p: Tensor, inverse: Tensor, n: float, order: int) -> Tensor:
    """A step of lambda (t - 1) towards G = 1, `(B, 1, ...)`, by derivatives of S up to order 2 or 3.

    `p` is overwritten; `inverse` is p^(t - 1).
    """
    sums = [p.sum(1, keepdim=True)]
    for _ in range(order):
        sums.append(p.mul_(inverse).sum(1, keepdim=True))
    # In units of Newton's model G(x) = G (1 + x), G(x) / G is 1 + x + a x^2 + b x^3 + ...
    mean = sums[1] / sums[0]
    second = sums[2] / sums[1] / mean
    rise = sums[0].log().mul_(1 / n).expm1_()
    a = (second - 1).mul_(-(n + 1) / 2)
    curve = a
    if order == 3:
        third = (sums[3] / sums[2]).mul_(second).div_(mean).sub_(1)
        b = third.mul_((n + 1) * (n + 2) / 6).add_(a, alpha=n + 1).addcmul_(a, a, value=-1)
        curve = b.mul_(rise).add_(a)
    # G'' is negative: steps that rise get longer, but not more than twice as long.
    return rise / curve.mul_(rise).add_(1).clamp_(min=0.5).mul_(mean)


def _by_powers(depth: Tensor, n: float, steps: int, inverse: Tensor, scratch: Tensor) -> Tensor:
    """1 + (t - 1) (lambda - largest logit), `(B, 1, ...)`, roughly, for n = 1 / (t - 1) >= 1.

    The sum of base^-n is approximated from those of base^-m and base^-(m + 1) for whole m next to n:
    its logarithm is nearly linear in n. Steps start where all logits would be equal, which is above
    the root. The last two tensors are overwritten.
    """
    m = min(int(n), MAX_POWER)
    most = depth.shape[1] ** (1 / n)
    level = torch.full_like(depth[:, :1], most)
    for _ in range(steps):
        torch.add(depth, level, out=inverse).reciprocal_()
        low, high = _power_sums(inverse, m, scratch)
        # As if there were low * size^m terms, all of them 1 / size.
        size = low / high
        level = level.sub_(size).add_(size.pow_(m).mul_(low).pow_(1 / n)).clamp_(min=1)
    return level


def _power_sums(x: Tensor, m: int, scratch: Tensor) -> tuple[Tensor, Tensor]:
    """Sums over dimension 1 of x^m and x^(m + 1), kept, for m from 1 to 4; both tensors are overwritten."""
    if m == 1:
        return x.sum(1, keepdim=True), _squared_length(x)
    if m == 2:
        return _squared_length(x), x.pow_(3).sum(1, keepdim=True)
    if m == 3:
        return torch.pow(x, 3, out=scratch).sum(1, keepdim=True), _squared_length(x.square_())
    square = torch.square(x, out=scratch)
    return _squared_length(square), square.square_().mul_(x).sum(1, keepdim=True)


def _squared_length(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dim=1, keepdim=True).square_()


def _solved_bounded(depth: Tensor, t: float) -> tuple[Tensor, Tensor]:
    """`_solved` for t < 1; `depth` is p^(1 - t) - 1 where lambda is the largest logit, and is overwritten.

    All but the last step need not have all digits: log for log1p.
    """
    shift, base, p = torch.zeros_like(depth[:, :1]), torch.empty_like(depth), torch.empty_like(depth)
    tiny = torch.finfo(depth.dtype).tiny
    for _ in range(passes(t, depth.shape[1], depth.dtype)[1]):
        torch.add(depth, shift + 1, out=base).clamp_(min=0)
        torch.log2(base, out=p).mul_(1 / (1 - t)).exp2_()
        total = p.sum(1, keepdim=True)
        slope = p.div_(base.clamp_(min=tiny)).sum(1, keepdim=True)
        shift.addcdiv_(total.pow(t).sub_(total), slope)
    logs = torch.log1p(depth.add_(shift).clamp_(min=-1), out=p).mul_(1 / ((1 - t) * LOG_2))
    base = depth.add_(1).clamp_(min=tiny)  # where p is 0
    p = logs.exp2()
    total = p.sum(1, keepdim=True)
    step = total * torch.expm1((t - 1) * total.log()) / p.div_(base).sum(1, keepdim=True)
    # The logarithm at the middle of the step, and p^(t - 1) at its end, have all digits: it is small.
    half = 0.5 * step
    power = base.add_(half).reciprocal_().masked_fill_(logs == -math.inf, 0)
    logs.addcmul_(power, step / ((t - 1) * LOG_2), value=-1)
    return logs, power.addcmul_(power.square(), half, value=-1)
