"""Executors of virtual runs.

worker_pool      processes of this command
submitit_crew    tasks of Slurm
ray_crew         tasks of a Ray cluster

All have hand_in() of crew.py. choice.py makes an executor by its name; packs.py packs short runs into tasks.
"""
