"""Campaigns: random programs, faults and fabrics beside a reference, seed by seed; findings are kept.

faults, virtual_faults       the controller's diagnosis, on a live fabric and in virtual time
fluid, fluid_calibration, fluid_detection    the fluid model beside the packet simulator
bmv2, p4_fuzz, p4_random     the embedded switch beside BMv2
"""
