"""Results for other tools: Parquet, pandas frames, nccl-tests' JSON. `mrc report DIR --parquet FILE`; docs/data.md."""
