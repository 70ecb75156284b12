"""Costs of failures to a job: published rates, sampled failures, drawn months.

model.py        the file: rates, times and their sources
samples.py      what one failure costs, from runs of packets and of the fluid model
month.py        months of failures drawn by seed, and what is lost
command.py      the command: runs, then months, table, page and pictures
report.py       table, picture and page
"""
