"""Step 5: a script that still writes raw commands, through the write guard: `python nightly.py observe ann bob`.

It gives each user a free sample. The guard reports what contradicts keys.py; with the mode `enforce` it refuses it.
"""

import os
import sys

from keys import ShopKeys

from keystead import connect, wait
from keystead.errors import WriteRefused
from keystead.schema.guard import GuardedStore, WriteGuard


def give_samples(url, mode, users):
    store = connect(url)
    guard = WriteGuard([ShopKeys(store)], mode, lambda finding: print(f"{finding.code}: {finding.family}"))
    for user in users:
        try:
            wait(GuardedStore(store, guard).run([("HSET", f"cart:{user}", "sample", "1")]))
        except WriteRefused as refused:
            print(f"refused: {refused}")


if __name__ == "__main__":
    give_samples(os.environ.get("SHOP_REDIS", "redis://localhost:6379/0"), sys.argv[1], sys.argv[2:])
