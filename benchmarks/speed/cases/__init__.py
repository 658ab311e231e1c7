"""One question a module: each measures and gives back what it found."""
