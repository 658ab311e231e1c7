"""Readers of the user's data (tables, arrays and loaders) as batches."""
