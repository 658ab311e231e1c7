"""The paper's experiments: what they run on, which runs their tables need, running them, and the tables."""
