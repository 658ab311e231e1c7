"""Upper quantiles of χ² and F distributions in closed form, without scipy.

The cube root of a χ² or F variable is nearly normal (Wilson and Hilferty, 1931; for the noncentral χ²
Abdel-Aty, 1954). The relative error is about 1 % from 30 dimensions on and 5 % from 10; for a single dimension the
noncentral quantile is too high by up to a sixth, so that tests are conservative.
"""

import math
from statistics import NormalDist


def chi_square_limit(dimensions: float, noncentrality: float, level: float) -> float:
    """Return the value that a noncentral χ² variable of ``dimensions`` exceeds with probability ``level``.

    ``r (1 − 2(1+b)/(9r) + z √(2(1+b)/(9r)))³`` with ``r = k + δ`` and ``b = δ/r``.

    Example:
        >>> round(chi_square_limit(10, 0.0, 0.05), 1)
        18.3
    """
    total = dimensions + noncentrality
    spread = 2 * (1 + noncentrality / total) / (9 * total)
    return total * (1 - spread + _normal_quantile(level) * math.sqrt(spread)) ** 3


def f_limit(above: float, below: float, level: float) -> float:
    """Return the value that an F variable with ``above`` and ``below`` degrees of freedom exceeds with ``level``.

    Returns infinity if the denominator has too few degrees of freedom for the approximation.

    Example:
        >>> round(f_limit(7, 120, 0.05), 1)
        2.1
    """
    # z = ((1−b) x − (1−a)) / √(b x² + a) for the cube root x of F, solved for x.
    a, b, z2 = 2 / (9 * above), 2 / (9 * below), _normal_quantile(level) ** 2
    first, second = (1 - b) ** 2 - z2 * b, (1 - a) * (1 - b)
    if first <= 0 or b >= 0.1:
        return math.inf
    root = math.sqrt(second**2 - first * ((1 - a) ** 2 - z2 * a))
    return float(((second + root) / first) ** 3)


def _normal_quantile(level: float) -> float:
    return -NormalDist().inv_cdf(level)
