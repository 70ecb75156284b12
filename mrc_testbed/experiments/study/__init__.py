"""Studies: a scenario over seeds and parameters, with confidence intervals (docs/studies.md).

model      types of a study file, with lines in its errors
plan       points and runs of a study
intervals  confidence intervals; imports no other module
stopping   number of seeds that a point needs, decided in the order of the seeds
carry_out  the runs, by any executor; complete runs are not made again
tables, picture, command    output
"""
