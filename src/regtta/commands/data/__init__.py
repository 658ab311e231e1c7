"""The user's data: tables, arrays and loaders, all as batches."""
