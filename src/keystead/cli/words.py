"""Words that several commands say."""


def counted(count: int, one: str, many: str = "") -> str:
    """`1 key`, `1,000 keys`"""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
