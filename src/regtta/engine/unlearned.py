"""Detection of streams from which nothing is learned, for reasons other than the absence of a shift."""

import re
from collections.abc import Mapping

from regtta.guards import ALIGNED_WITH_SOURCE, NO_SHIFT

FROZEN = "frozen by hand"
MAX_UNLEARNED = 20  # batches without any learning after which a warning is logged
_EXPECTED = frozenset({NO_SHIFT, ALIGNED_WITH_SOURCE, FROZEN})
# Gate, StationarityGuard and windows wait for samples at the start of a stream, and say so in these words.
_WAITING = re.compile(r"fewer than \d+ samples")
_REASONS_NAMED = 3
_TOO_SMALL = re.compile(r"a batch of \d+ (has no variance|is fewer than)")


def describe_unlearned(reasons: Mapping[str, int], learned: int) -> str:
    """Return a warning if nothing was learned from 20 batches although there may be a shift, else an empty text.

    Batches that were rejected because there is no shift, because more samples are needed first, or because the adapter
    is frozen do not count.

    Args:
        reasons: number of batches that were not learned from, by reason.
        learned: number of batches that were learned from.

    Example:
        >>> describe_unlearned({"no shift": 500}, 0), describe_unlearned({"a batch of 1 has no variance": 500}, 7)
        ('', '')
        >>> describe_unlearned({"all samples are the same": 20}, 0)[:80]
        'Nothing was learned from 20 batches (20: all samples are the same). adapter.summ'
    """
    counted = {
        reason: count for reason, count in reasons.items() if reason not in _EXPECTED and not _WAITING.search(reason)
    }
    if learned or sum(counted.values()) < MAX_UNLEARNED:
        return ""
    most = sorted(counted.items(), key=lambda item: -item[1])[:_REASONS_NAMED]
    listed = "; ".join(f"{count:,}: {reason}" for reason, count in most)
    fix = "adapter.summary() lists all reasons; regtta.check(model, batch, source) looks for the cause."
    if _TOO_SMALL.search(most[0][0]):
        fix = 'Pass larger batches, or keep a window of past samples: window=64, batch_norm="blended".'
    return f"Nothing was learned from {sum(reasons.values()):,} batches ({listed}). {fix}"
