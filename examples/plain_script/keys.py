"""The key document of the script."""

from keystead import Counter, Keyspace, never
from keystead.parts.decorators import Locked, Once


class ImportKeys(Keyspace):
    """Orders that a script imports from files, each order once."""

    order = Once("import:order:{number:int}", int, lifetime=never("an order is never imported twice"), doc="its cents")
    total = Counter("import:total", lifetime=never("the sum of all orders"), doc="cents of all imported orders")
    running = Locked("import:running:{folder}", lease="1m", doc="the import of a folder that is running")
