"""What adapting costs, as ratios measured in one run: ``python -m benchmarks.speed --out FOLDER``.

``cases/`` measures, one question a module, and ``catalogue.py`` names them all; ``findings.py`` is what they find,
``record.py`` keeps it as JSON, ``rendering.py`` and ``figures.py`` show what is kept.
"""
