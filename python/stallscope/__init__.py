"""Shows which stage of a data loader keeps the device of a training idle, and what to change.

``stage("name")`` names a part of a sample: ``with stage("tokenize"): ...``, or ``@stage("tokenize")`` before a function.
"""

from stallscope._native import Timed
from stallscope._stage import stage

__all__ = ["stage"]

# What is decorated says of itself what it said before; a native class cannot have this by itself.
Timed.__doc__ = property(lambda timed: timed.__wrapped__.__doc__)  # type: ignore[assignment]
