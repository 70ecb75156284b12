"""Experiments: scenario files (docs/scenarios.md), the runs they describe, their results and reports.

From a file to a page:

    language    types of a file, YAML with line numbers, expansion into runs, fault schedule, assertions
    runner      plan_runs(), carry_out(): every run of a file, virtual or live, with verdicts
    executors   who makes virtual runs: processes here, tasks of Slurm or Ray
    study       seeds and parameters of a scenario, confidence intervals
    virtual     runs in virtual time;  live: runs in Mininet
    results     the folder of results;  run_store: its sealed files;  merge: several as one
    outcome, metrics, metric_values, repeats: what is in it
    report      HTML pages and figures;  console_summary: the same in a terminal;  compare: two folders
    export      Parquet and pandas frames, nccl-tests' JSON
    command     `mrc run`, `mrc scenario`, `mrc compare`;  study/command: `mrc study`
"""
