"""Adaptation on streams that are not independent draws of one shift: sorted, in bursts, drifting, over again.

Every method with guards and without, from the same source models over the same streams, against the source model.
"""
