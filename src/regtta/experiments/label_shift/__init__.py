"""What can be told about moved labels without labels: constructed shifts, signals, and what adapting does there."""
