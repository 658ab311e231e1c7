"""Reproduction of the paper's experiments: settings, run specifications, execution and result tables."""
