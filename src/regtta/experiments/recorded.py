"""Format identifiers of run records, shared by writers and readers."""

ADAPTATION = "regtta.adaptation/1"
