"""Cards that a person sends or comes from, in words for the model: places, contacts, orders, forms, advertisements.

Pure. Each is one line in brackets, which mark it as no typed text.
"""

from __future__ import annotations

import msgspec

from tailrace.delivery.cards import card_words
from tailrace.delivery.planning.presenter import preview_line

MAX_DETAILS = 10  # telephone numbers and e-mail addresses of a contact
MAX_ITEMS = 50  # products of an order
MAX_FORM = 2000  # characters of what a form was filled in with


class Location(msgspec.Struct):
    latitude: float
    longitude: float
    name: str = ""
    address: str = ""

    @property
    def words(self) -> str:
        return card_words("location", self.name, self.address, f"{self.latitude}, {self.longitude}")


class Sticker(msgspec.Struct):
    """One that moves is no image that every model takes."""

    id: str = ""
    mime_type: str = ""
    animated: bool = False

    @property
    def words(self) -> str:
        return "[animated sticker; this bot cannot see it]" if self.animated else "[sticker]"


class Unsupported(msgspec.Struct):
    """A message that WhatsApp shows to no business. `type` is WhatsApp's word for it, where it has one."""

    type: str = ""

    @property
    def words(self) -> str:
        """Empty for what asks for no answer: a message that was changed, deleted, pinned or kept, a vote."""
        if self.type in _NO_MESSAGES:
            return ""
        what = _UNSUPPORTED_WORDS.get(self.type, "a message")
        return f"[{what} that WhatsApp does not show to this bot]"


_NO_MESSAGES = frozenset({"edit", "keep_in_chat", "pin", "poll_update", "reaction", "revoke"})
_UNSUPPORTED_WORDS = {
    "event": "an event",
    "gif": "a GIF",
    "group_invite": "an invitation to a group",
    "image": "an image",
    "location": "a place",
    "poll_creation": "a poll",
    "product": "a product",
}


class _CardName(msgspec.Struct):
    formatted_name: str = ""


class _CardEntry(msgspec.Struct):
    """A telephone number or an address of a contact."""

    phone: str = ""
    email: str = ""


class ContactCard(msgspec.Struct):
    name: _CardName = msgspec.field(default_factory=_CardName)
    phones: list[_CardEntry] = []
    emails: list[_CardEntry] = []

    @property
    def words(self) -> str:
        reached_by = [entry.phone or entry.email for entry in (*self.phones, *self.emails)]
        more = f"and {len(reached_by) - MAX_DETAILS} more" if len(reached_by) > MAX_DETAILS else ""
        return card_words("contact", self.name.formatted_name, *reached_by[:MAX_DETAILS], more)


class Product(msgspec.Struct):
    """A product of the catalogue that the person asks about."""

    product_retailer_id: str = ""

    @property
    def words(self) -> str:
        return card_words("about the product", self.product_retailer_id)


class _OrderItem(msgspec.Struct):
    product_retailer_id: str = ""
    quantity: int | float | str = 1
    item_price: int | float | str = ""
    currency: str = ""

    @property
    def words(self) -> str:
        price = f" at {self.item_price} {self.currency}".rstrip() if self.item_price != "" else ""
        return f"{self.quantity} × {self.product_retailer_id}{price}"


class Order(msgspec.Struct):
    """A basket of the catalogue's products. `text` is what the person wrote with it."""

    text: str = ""
    product_items: list[_OrderItem] = []

    @property
    def words(self) -> str:
        items = [item.words for item in self.product_items]
        more = f"and {len(items) - MAX_ITEMS} more" if len(items) > MAX_ITEMS else ""
        return f"{card_words('order', *items[:MAX_ITEMS], more)}\n{self.text}".rstrip()


class AnsweredForm(msgspec.Struct):
    """A form ("flow") that was filled in: its fields as JSON."""

    response_json: str = ""

    @property
    def words(self) -> str:
        return f"[form: {preview_line(self.response_json, MAX_FORM)}]"


class Referral(msgspec.Struct):
    """The advertisement that brought the person here."""

    headline: str = ""
    body: str = ""
    source_url: str = ""

    @property
    def words(self) -> str:
        return card_words("by an advertisement", self.headline, self.body, self.source_url)
