"""Study of what to adapt in models without normalisation layers: plain MLPs and recurrent networks.

``python -m benchmarks.no_normalisation --data DIR --out results/no_normalisation`` runs it and writes its tables.
"""
