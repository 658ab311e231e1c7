"""What a user of the command line types and reads: options, help, reports, errors."""
