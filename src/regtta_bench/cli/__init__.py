"""Commands of the experiments, which join ``regtta`` through the entry-point group ``regtta.commands``."""
