"""Values to bytes and back: a value is stored as its own text, or as the JSON that JavaScript's JSON.stringify writes.

    str                     its text, in UTF-8, without quotes
    bytes                   as they are
    int, bool, float        `42`, `true`, `0.5`
    datetime, UUID, Literal what stands between the quotes in JSON
    models, lists, dicts    compact JSON, fields in the order of their declaration, None as `null`

Reading is strict: only what could have been written is read. What cannot be written is a `BadValue` before anything
is sent; what cannot be read is `Unreadable`. No sentence of either holds a value, since the value may be a secret.

`choice` says which codec a type gets: `plain`, `scalars`, `sealed_text`, `json_values` and `records` hold them. What
they know of a type is its `blueprint`; a type that could not be read back is refused in `storable`.
"""

from keystead.schema.codec.choice import codec_for
from keystead.schema.codec.codec import Codec
from keystead.schema.codec.omitted import OmittedIfNone, without_none
from keystead.schema.codec.versions import Versions

__all__ = ["Codec", "OmittedIfNone", "Versions", "codec_for", "without_none"]
