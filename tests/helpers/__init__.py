"""What tests share: small models and streams, made-up data sets, processes, faults."""
