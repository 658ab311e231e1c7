"""What is measured rather than tested: ``speed`` is a package, the other files are scripts."""
