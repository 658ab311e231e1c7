"""Study of label-shift detection without labels: constructed shifts, candidate signals, and effects of adaptation."""
