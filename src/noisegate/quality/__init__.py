"""How good given labels are, from anyone's out-of-sample probabilities: numpy only, nothing is trained."""

from noisegate.noise.transition import confident_joint, estimate_noise_rate, estimate_transition
from noisegate.quality.annotators import Answers, Consensus, consensus, is_answers, read_answers
from noisegate.quality.calibration import calibrate
from noisegate.quality.confident import confident_learning, prune_by_noise_rate
from noisegate.quality.issues import Judgement, find_label_issues, judge
from noisegate.quality.maps import Region, map_quality, map_regions, overlay
from noisegate.quality.scores import label_quality

__all__ = [
    "Answers",
    "Consensus",
    "Judgement",
    "Region",
    "calibrate",
    "confident_joint",
    "confident_learning",
    "consensus",
    "estimate_noise_rate",
    "estimate_transition",
    "find_label_issues",
    "is_answers",
    "judge",
    "label_quality",
    "map_quality",
    "map_regions",
    "overlay",
    "prune_by_noise_rate",
    "read_answers",
]
