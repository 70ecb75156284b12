"""Export of results: Parquet, pandas frames, JSON of nccl-tests (docs/data.md)."""
