"""Runs on many machines, through Ray; the extra ``regtta[ray]``.

One process drives: it gives out tasks, keeps the results and holds the folder of source models. Workers find data on
their own machine; source models go to them, and come from those who trained them, as files.
"""
