"""Benchmarks of the cost of adaptation, as ratios measured in one run: ``python -m benchmarks.speed --out FOLDER``.

``cases/`` has one measurement per module, and ``catalogue.py`` the table of all cases. Results are ``findings.py``,
saved as JSON by ``record.py`` and shown by ``rendering.py`` and ``figures.py``.
"""
