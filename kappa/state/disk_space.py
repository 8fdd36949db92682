"""The space of the root's disk, as the supervisor and all other processes see it.

The supervisor gives up its reserve when the disk is full, and makes a new reserve once there is
space. So the disk itself shows its state: no report could be written to a full disk.
"""

from __future__ import annotations

import shutil

from kappa.base.units import size
from kappa.state.store import Store

RESERVE = "reserve"


def free_bytes(store: Store) -> int:
    """Returns the free bytes of the root's disk."""
    return shutil.disk_usage(store.local.folder).free


def full_text(free: int, reserve: int) -> str:
    """Returns the sentence about a full disk with a reserve of `reserve` bytes, for people."""
    return (
        f"the disk is full: {size(free)} are free, and jobs run again once {size(2 * reserve)} are"
    )


def why_jobs_rest(store: Store, reserve: int) -> str:
    """Returns why the jobs of a supervisor that is up rest, or "" if the disk has space."""
    free = free_bytes(store)
    given_up = not store.local.path(RESERVE).exists()
    return full_text(free, reserve) if given_up and free < 2 * reserve else ""
