"""Values of every type that a form can edit."""

from __future__ import annotations

import enum
from typing import Literal

from pydantic import BaseModel, ConfigDict

from keystead.schema import Hash, Keyspace, OmittedIfNone, Sealed, Value, after


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Address(BaseModel):
    city: str
    floor: int | None = None
    access_token: str = ""


class Order(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)

    paid: bool = False
    """whether the money is there"""
    gift: bool | None = None
    colour: Colour = Colour.RED
    size: Size | None = None
    state: Literal["open", "sent"] = "open"
    note: str | None = None
    coupon: OmittedIfNone[str] = None
    priority: OmittedIfNone[int] = None
    to: Address
    bill: Address | None = None
    tags: list[str] = []


class Profile(BaseModel):
    name: str
    age: int | None = None
    is_member: bool = False
    colour: Colour = Colour.RED
    home: Address | None = None
    pin: Sealed[str] | None = None


class FormKeys(Keyspace):
    """Orders and profiles."""

    order = Value("order:{id}", Order, lifetime=after("1d"), doc="an order")
    is_open = Value("open:{id}", bool, lifetime=after("1d"), doc="whether a shop is open")
    size = Value("size:{id}", Size, lifetime=after("1d"), doc="a size")
    colour = Value("colour:{id}", Colour, lifetime=after("1d"), doc="a colour")
    profile = Hash("profile:{id}", Profile, lifetime=after("1d"), doc="a profile")
    stock = Hash("stock:{id}", dict[str, int], lifetime=after("1d"), doc="the stock")
    label = Hash("label:{id}", dict[str, str], lifetime=after("1d"), doc="labels")
