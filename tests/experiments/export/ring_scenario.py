"""Scenario of rings in two variants and two collectives; needs no package beside ours."""

RINGS = """\
title: rings
fabric: {planes: 2, racks: 2, spines: 1, hosts_per_rack: 1}
workload: [{collective: $kind, name: ring, size: 16K, iterations: 3}]
variants: {mrc: {}, roce-1: {transport: {kind: rocev2}}}
sweep: {kind: [all_reduce, all_gather]}
measure: {every: 20ms}
"""
