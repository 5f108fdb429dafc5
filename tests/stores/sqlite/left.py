"""Leaks of a store in this process: running threads and open files."""

import os
import threading


def threads() -> set[threading.Thread]:
    """Those of stores. They are compared one by one, since a thread of a test before may just be ending."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("keystead")}


def descriptors(path: str) -> int:
    """How many of this process's open files are the store's."""
    links = []
    for number in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:  # the one that listed them
            continue
    return sum(link.startswith(path) for link in links)
