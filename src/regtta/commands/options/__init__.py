"""Options of the commands, each declared once: frozen dataclasses whose fields carry what typer parses and prints.

These modules import nothing heavy, so that ``--help`` is printed without loading torch.
"""
