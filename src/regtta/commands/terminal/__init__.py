"""The command-line interface: typer commands, help, printed reports and errors."""
