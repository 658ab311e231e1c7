"""What the commands of ``regtta`` do, one idea a module.

Nothing here prints but :mod:`regtta.commands.terminal`: every command is a
function from frozen options to a frozen report.
"""
