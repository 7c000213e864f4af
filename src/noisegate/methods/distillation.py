"""Distillation: a student learns from the probabilities of a teacher that was trained on the noisy labels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from noisegate.errors import InputError, UnknownNameError
from noisegate.fitted import Fitted
from noisegate.methods.base import Method
from noisegate.methods.direct import Direct
from noisegate.methods.named import symmetric_transition
from noisegate.methods.registry import register
from noisegate.objectives import CrossEntropy, ForwardCorrection, LabelSmoothing, Objective, weighted_mean
from noisegate.training.job import Job
from noisegate.training.phase import Batch, Phase, PhaseModule, Phases

KINDS = ("ce", "ls", "fc")


class Imitating(PhaseModule):
    """A student trained on a frozen teacher: objective(student / t, softmax(teacher / t)), nothing else.

    The teacher sees the same augmented inputs as the student, in evaluation mode and without a
    gradient.
    """

    def __init__(
        self, student: nn.Module, objective: Objective, teacher: nn.Module, temperature: float
    ) -> None:
        super().__init__()
        self.student, self.objective, self.temperature = student, objective, temperature
        self.teacher = teacher.requires_grad_(False)
        self.teacher.zero_grad()  # left over from its own training

    def train(self, mode: bool = True) -> Imitating:
        super().train(mode)
        self.teacher.eval()
        return self

    def forward(self, batch: Batch) -> Tensor:
        with torch.no_grad():
            target = torch.softmax(self._tempered(self.teacher, batch.x), dim=1)
        outputs = self._tempered(self.student, batch.x)
        losses = self.objective(outputs, target, reduction="none")
        return weighted_mean(losses, batch.weight.to(losses.dtype))

    def _tempered(self, network: nn.Module, x: Tensor) -> Tensor:
        return self.objective.check_outputs(network(x)) / self.temperature

    def predictor(self) -> tuple[nn.Module, Objective]:
        return self.student, self.objective


@register(
    "distillation",
    "a teacher on the noisy labels, then a student on the teacher's tempered probabilities",
    "Lukasik et al. 2020, label smoothing under label noise, section 5",
)
@dataclass
class Distillation(Method):
    """Train a teacher on the noisy labels, then a student of the same kind on its tempered probabilities alone.

        q = softmax(f_teacher / t),    student "ce":  -sum_k q_k log softmax(f / t)_k
                                       student "ls":  the same against (1 - alpha) q + alpha / K
                                       student "fc":  -sum_k q_k log (T' softmax(f / t))_k

    T = (1 - alpha) I + alpha/K J. There are no given labels in the second phase, and no factor t^2.
    Both phases follow the recipe. Predictions are the student's softmax at temperature 1.

    Parameters
    ----------
    teacher, student : {"ce", "ls", "fc"}
        The loss of the teacher, and how the student changes its targets: not at all, by label smoothing,
        or by forward correction. The columns of table 5 are (teacher, student) = ("ce",
        "ce"), vanilla; ("ls", "ce"); ("ce", "ls"); ("fc", "ce"); ("ce", "fc").
    alpha : float
        Parameter of label smoothing and forward correction, in [0, 1); 0.1 in table 5.
    temperature : float
        t, positive: 2 in table 5, 1 in figure 6 (which varies alpha with teacher="ls").

    Notes
    -----
    The paper trains "against the teacher's logits" without saying for which inputs. Here the teacher sees the
    same crops and flips as the student.

    References
    ----------
    Lukasik, Bhojanapalli, Menon, Kumar. Does label smoothing mitigate label noise? ICML 2020.
    Hinton, Vinyals, Dean. Distilling the knowledge in a neural network. 2015.
    """

    teacher: str = "ce"
    student: str = "ce"
    alpha: float = 0.1
    temperature: float = 2.0

    def phases(self, job: Job) -> Phases:
        self._check()
        first = self._objective(self.teacher, job.n_classes)
        teacher = job.network(first)
        yield Phase(Direct(teacher, first), job.recipe, name="teacher")
        second = self._objective(self.student, job.n_classes)
        student = job.network(second)
        yield Phase(Imitating(student, second, teacher, self.temperature), job.recipe, name="student")
        return Fitted(student, second)

    def _check(self) -> None:
        for name in (self.teacher, self.student):
            if name not in KINDS:
                raise UnknownNameError("loss of the teacher or the student", name, KINDS)
        if not 0 <= self.alpha < 1:
            raise InputError(f"alpha must lie in [0, 1), got {self.alpha!r}")
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise InputError(f"temperature must be positive, got {self.temperature!r}")

    def _objective(self, kind: str, n_classes: int) -> Objective:
        if kind == "ls":
            return LabelSmoothing(n_classes, self.alpha)
        if kind == "fc":
            return ForwardCorrection(n_classes, symmetric_transition(n_classes, self.alpha))
        return CrossEntropy(n_classes)
