"""Import orders from CSV files: `python import_orders.py orders.csv`. Running it again imports nothing twice."""

import csv
import sys
from pathlib import Path

from keys import ImportKeys

from keystead import connect
from keystead.parts.decorators import lock, once

keys = ImportKeys(connect("sqlite:///orders.db"))


@once(keys.order)
def import_order(number: int, cents: int) -> int:
    keys.total().increment(cents).wait()
    return cents


def main(paths: list[str]) -> None:
    for path in paths:
        with lock(keys.running(str(Path(path).resolve().parent)), comment=path), open(path, newline="") as file:
            for row in csv.DictReader(file):
                import_order(int(row["number"]), int(row["cents"]))
    print(f"imported so far: {keys.total().get().wait() or 0} cents")


if __name__ == "__main__":
    main(sys.argv[1:])
