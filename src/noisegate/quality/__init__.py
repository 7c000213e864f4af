"""How good given labels are, from anyone's out-of-sample probabilities: numpy only, nothing is trained."""

from noisegate.noise.transition import confident_joint, estimate_noise_rate, estimate_transition
from noisegate.quality.calibration import calibrate
from noisegate.quality.confident import confident_learning, prune_by_noise_rate
from noisegate.quality.issues import Judgement, find_label_issues, judge
from noisegate.quality.scores import label_quality

__all__ = [
    "Judgement",
    "calibrate",
    "confident_joint",
    "confident_learning",
    "estimate_noise_rate",
    "estimate_transition",
    "find_label_issues",
    "judge",
    "label_quality",
    "prune_by_noise_rate",
]
