"""Studies: a scenario over seeds and parameters, with confidence intervals, as a file (docs/studies.md).

model      what a file says, with lines in its errors
plan       its points and runs
intervals  confidence intervals, no other module
stopping   how many seeds a point needs, decided in the order of the seeds
carry_out  the runs, by any executor; what is whole is not made again
tables, picture, command    what is shown
"""
