"""Studies."""

from noisegate.studies.study import Study

STUDIES: tuple[Study, ...] = ()
