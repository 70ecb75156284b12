"""Who makes virtual runs: processes here (worker_pool), tasks of Slurm (submitit_crew) or of a Ray cluster (ray_crew).

All answer hand_in() of crew.py. choice.py makes one by its name; packs.py puts short runs together.
"""
