"""RoCEv2 RC, the baseline (docs/baseline.md): go-back-N over one path, with DCQCN."""
