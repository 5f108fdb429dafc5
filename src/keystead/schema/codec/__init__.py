"""Values to bytes and back: a value is stored as its own text, or as the JSON that JavaScript's JSON.stringify writes.

    str                     its text, in UTF-8, without quotes
    bytes                   as they are
    int, bool, float        `42`, `true`, `0.5`
    datetime, UUID, Literal the text between the quotes in JSON
    models, lists, dicts    compact JSON, fields in the order of their declaration, None as `null`

Reading is strict: only data that could have been written is accepted. A value that cannot be written is a `BadValue`
before anything is sent; stored data that cannot be read is `Unreadable`. Neither message contains a value, which may be
a secret.

`choice` selects the codec of a type: they are in `plain`, `scalars`, `sealed_text`, `json_values` and `records`. A
`blueprint` describes a type for them; `storable` refuses types that could not be read back.
"""

from keystead.schema.codec.choice import codec_for
from keystead.schema.codec.codec import Codec
from keystead.schema.codec.omitted import OmittedIfNone, without_none
from keystead.schema.codec.versions import Versions

__all__ = ["Codec", "OmittedIfNone", "Versions", "codec_for", "without_none"]
