"""Schedules, one file each: which rounds relabel, and with which budget."""

from fedrela_bench.schedules import fixed, linear
from fedrela_bench.schedules.base import Options, Schedule, Timing
from fedrela_bench.schedules.registry import SCHEDULES, build_schedule, register_schedule, schedule_faults

__all__ = [
    "SCHEDULES",
    "Options",
    "Schedule",
    "Timing",
    "build_schedule",
    "fixed",
    "linear",
    "register_schedule",
    "schedule_faults",
]
