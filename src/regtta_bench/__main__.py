"""``python -m regtta_bench``: the ``regtta`` command line from a source tree, without installed entry points."""

from regtta.cli.app import app
from regtta_bench.cli.commands import app as experiments

if __name__ == "__main__":
    if not any(group.typer_instance is experiments for group in app.registered_groups):
        app.add_typer(experiments)
    app(prog_name="regtta")
