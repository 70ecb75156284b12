"""Experiments: scenario files (docs/scenarios.md), the runs they describe, their results and reports.

From a file to a page; each imports only what stands above it:

    language    types of a file, YAML with line numbers, expansion into runs;  traces: of training jobs
    resolve     a run with every default filled in (RunPlan): fabric, engine, queues, work, faults
    backend     protocol and outcome of the back ends: virtual (virtual time), fluid (rates), live (Mininet)
    metrics     values by name, verdicts on rules, spread of repeats
    results     the folder of results;  run_store: its sealed files
    report      HTML pages and figures;  export: Parquet and pandas frames, nccl-tests' JSON
    executors   who makes virtual runs: processes here, tasks of Slurm or Ray
    runner      plan_runs(), run_scenario(): every run of a file with verdicts
    console_summary: results in a terminal;  compare: two folders;  merge: several as one
    command     `mrc run`, `mrc scenario`, `mrc compare`
    study       seeds and parameters of a scenario, confidence intervals
"""
