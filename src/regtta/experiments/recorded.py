"""What records of runs are told by, for who writes them and for who reads them."""

ADAPTATION = "regtta.adaptation/1"
