"""Ways of making runs, one a module: in this process, in several, on many machines."""
