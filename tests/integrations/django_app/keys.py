"""The keyspace of the application, which Django finds by the name of this file."""

from keystead import Keyspace, after
from keystead.integrations.django import CachedPage
from keystead.parts.decorators import Cached, Limited


class ShopKeys(Keyspace):
    """A shop."""

    searches = Limited("shop:searches:{client}", "3/minute")
    page = Cached("shop:page:{path<=200}", CachedPage, lifetime=after("5m"), doc="a page for everybody")
