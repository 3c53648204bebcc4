"""The numbers that judgeq claims, each beside a floor or a peer measured in the same run.

`make bench` (or `python -m benchmarks [name …]`) prints them. Machines are noisy: what is compared
takes turns, and the median counts.
"""
