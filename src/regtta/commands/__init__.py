"""The commands of ``regtta``: functions from frozen options to a frozen report.

Only :mod:`regtta.commands.terminal` prints.
"""
