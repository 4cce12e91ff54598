"""The smallest change of accuracy that n paired questions show: 80 % power, 5 % two-sided.

The same question is asked under both conditions; d is the share of questions whose answer becomes right or wrong. A
change D is shown with power 1 - b at level a where (Connor 1987, Biometrics 43, 207-211)

    D sqrt(n) = z(1 - a/2) sqrt(d) + z(1 - b) sqrt(d - D^2)
"""

import math
from statistics import NormalDist

from maskwise.scoring.estimates import LEVEL

Z_LEVEL, Z_POWER = 1.959964, 0.841621  # quantiles .975 and .8 of the normal law


def smallest_detectable(questions: int, discordance: float) -> float:
    """Of so many paired questions; where `discordance` is too small for any, the smallest with all changes one way."""
    n = float(max(1, questions))
    root = math.sqrt(max(0.0, n + Z_POWER**2 - Z_LEVEL**2))
    per_root = (Z_LEVEL * math.sqrt(n) + Z_POWER * root) / (n + Z_POWER**2)
    return min(1.0, per_root * max(math.sqrt(discordance), per_root))


def questions_for(difference: float, discordance: float, tests: int = 1) -> int:
    """How many paired questions show such a change; the reverse of `smallest_detectable`.

    tests: of so many by Holm's procedure, whatever the others give.
    """
    share, z_level = max(discordance, difference), NormalDist().inv_cdf(1 - LEVEL / (2 * tests))
    return math.ceil(((z_level * math.sqrt(share) + Z_POWER * math.sqrt(share - difference**2)) / difference) ** 2)
