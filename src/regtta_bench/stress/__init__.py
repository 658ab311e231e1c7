"""Stress benchmark: adaptation on non-i.i.d. streams, such as sorted, bursty, drifting and recurring ones.

Every method runs with and without safety guards on the same source models and streams, and is compared with the
unadapted source model.
"""
