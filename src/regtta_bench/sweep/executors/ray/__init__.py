"""Execution of runs on a Ray cluster; needs the extra ``regtta[ray]``.

The driver submits tasks, stores the results and owns the folder of source models. Workers read data from their own
machine; source models are transferred between driver and workers as files.
"""
