"""Nexmark's events: people, auctions and bids of an auction site, the same for each seed.

The events follow the description of the generator at https://github.com/nexmark/nexmark: 1 person
and 3 auctions per 46 bids, rising ids, hot auctions, sellers and bidders, and bids on auctions and
by people that come later. Events are out of order by up to `OUT_OF_ORDER` places.

Two things are our own. Time passes at ten events a second, so that few events fill many windows.
And after each `STRETCH` events time leaps by five hours, so that days and hours of the day differ.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass

PERSON, AUCTION, BID = "person", "auction", "bid"
# The column that each topic's records have as their key, and how many partitions it has.
KEYS = {PERSON: "id", AUCTION: "id", BID: "bidder"}
PARTITIONS = {PERSON: 1, AUCTION: 2, BID: 3}

_PEOPLE, _AUCTIONS, _BIDS = 1, 3, 46
_EPOCH = _PEOPLE + _AUCTIONS + _BIDS
OUT_OF_ORDER = 50
_STRIDE = 953
# 2015-07-15T18:59:00Z
_BEGAN_MS = 1_436_986_740_000
_EVERY_MS = 100
STRETCH = 1_000
_LEAP_MS = 5 * 3_600_000

_FIRST_ID = 1_000
_FIRST_CATEGORY, _CATEGORIES = 10, 5
# Of the people and auctions that have come, the newest take part, and some that are yet to come.
_ACTIVE_PEOPLE, _IN_FLIGHT, _LEAD = 1_000, 100, 10
# Each hundredth is hot: it takes all but one in so many.
_HOT, _HOT_AUCTIONS, _HOT_SELLERS, _HOT_BIDDERS = 100, 2, 4, 4
_PERSON_SIZE, _AUCTION_SIZE, _BID_SIZE = 200, 500, 100

_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = (
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland"),
    *("Bend", "Redmond", "Seattle", "Kent", "Cheyenne"),
)
_FIRST_NAMES = (
    *("Peter", "Paul", "Luke", "John", "Saul", "Vicky"),
    *("Kate", "Julie", "Sarah", "Deiter", "Walter"),
)
_LAST_NAMES = (
    *("Shultz", "Abrams", "Spencer", "White", "Bartels"),
    *("Walton", "Smith", "Jones", "Noris"),
)
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_CHANNELS = 10_000
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Made:
    """An event to send: its topic, key, value, and the time at which it is sent."""

    topic: str
    key: bytes
    value: bytes
    sent_ms: int


def auction_events(count: int, *, seed: int = 28) -> Iterator[Made]:
    """Yields this many events, in the order in which they are sent."""
    draw = random.Random(seed)
    hot_urls = [_base_url(draw) for _ in _HOT_CHANNELS]
    channels = [_channel(draw, number) for number in range(_CHANNELS)]
    for sent in range(count):
        number = sent - sent % OUT_OF_ORDER + sent * _STRIDE % OUT_OF_ORDER
        at, place = _time_of(number), number % _EPOCH
        if place < _PEOPLE:
            topic, event = PERSON, _person(draw, number, at)
        elif place < _PEOPLE + _AUCTIONS:
            topic, event = AUCTION, _auction(draw, number, at)
        else:
            hot = draw.randrange(2) > 0
            which = draw.randrange(len(_HOT_CHANNELS) if hot else _CHANNELS)
            channel = (_HOT_CHANNELS[which], hot_urls[which]) if hot else channels[which]
            topic, event = BID, _bid(draw, number, at, channel)
        value = json.dumps(event, separators=(",", ":")).encode()
        yield Made(topic, str(event[KEYS[topic]]).encode(), value, _time_of(sent))


def _time_of(number: int) -> int:
    return _BEGAN_MS + number * _EVERY_MS + number // STRETCH * _LEAP_MS


def _person(draw: random.Random, number: int, at: int) -> dict[str, str | int]:
    told = {
        "name": f"{draw.choice(_FIRST_NAMES)} {draw.choice(_LAST_NAMES)}",
        "emailAddress": f"{_text(draw, 7)}@{_text(draw, 5)}.com",
        "creditCard": " ".join(f"{draw.randrange(10_000):04d}" for _ in range(4)),
        "city": draw.choice(_CITIES),
        "state": draw.choice(_STATES),
    }
    extra = _extra(draw, 8 + sum(map(len, told.values())), _PERSON_SIZE)
    return {"id": _FIRST_ID + _last_person(number), **told, "dateTime": at, "extra": extra}


def _auction(draw: random.Random, number: int, at: int) -> dict[str, str | int]:
    if draw.randrange(_HOT_SELLERS) > 0:
        seller = _last_person(number) // _HOT * _HOT
    else:
        seller = _some_person(draw, number)
    least = _price(draw)
    item, description = _text(draw, 20), _text(draw, 100)
    length = 1 + draw.randrange(2 * _IN_FLIGHT * _EPOCH // _AUCTIONS * _EVERY_MS)
    return {
        "id": _FIRST_ID + _last_auction(number),
        "itemName": item,
        "description": description,
        "initialBid": least,
        "reserve": least + _price(draw),
        "dateTime": at,
        "expires": at + length,
        "seller": _FIRST_ID + seller,
        "category": _FIRST_CATEGORY + draw.randrange(_CATEGORIES),
        "extra": _extra(draw, 48 + len(item) + len(description), _AUCTION_SIZE),
    }


def _bid(
    draw: random.Random, number: int, at: int, channel: tuple[str, str]
) -> dict[str, str | int]:
    newest = _last_auction(number)
    if draw.randrange(_HOT_AUCTIONS) > 0:
        auction = newest // _HOT * _HOT
    else:
        oldest = max(newest - _IN_FLIGHT, 0)
        auction = oldest + draw.randrange(newest - oldest + 1 + _LEAD)
    if draw.randrange(_HOT_BIDDERS) > 0:
        # The second of each hundred, so that hot bidders and hot sellers are others.
        bidder = _last_person(number) // _HOT * _HOT + 1
    else:
        bidder = _some_person(draw, number)
    return {
        "auction": _FIRST_ID + auction,
        "bidder": _FIRST_ID + bidder,
        "price": _price(draw),
        "channel": channel[0],
        "url": channel[1],
        "dateTime": at,
        "extra": _extra(draw, 32, _BID_SIZE),
    }


def _last_person(number: int) -> int:
    """Returns the number of the newest person at this event, counted from 0."""
    return number // _EPOCH * _PEOPLE + min(number % _EPOCH, _PEOPLE - 1)


def _last_auction(number: int) -> int:
    epoch, place = divmod(number, _EPOCH)
    if place < _PEOPLE:
        return epoch * _AUCTIONS - 1
    return epoch * _AUCTIONS + min(place - _PEOPLE, _AUCTIONS - 1)


def _some_person(draw: random.Random, number: int) -> int:
    people = _last_person(number) + 1
    active = min(people, _ACTIVE_PEOPLE)
    return people - active + draw.randrange(active + _LEAD)


def _price(draw: random.Random) -> int:
    return round(10.0 ** (draw.random() * 6.0) * 100.0)


def _channel(draw: random.Random, number: int) -> tuple[str, str]:
    url = _base_url(draw)
    if draw.randrange(10) > 0:
        # Java's Integer.reverse, and its abs.
        reverse = int(f"{number:032b}"[::-1], 2)
        url += f"&channel_id={abs(reverse - (reverse >> 31 << 32))}"
    return f"channel-{number}", url


def _base_url(draw: random.Random) -> str:
    folders = "/".join(_text(draw, 5, "_") for _ in range(3))
    return f"https://www.nexmark.com/{folders}/item.htm?query=1"


def _text(draw: random.Random, most: int, special: str = " ") -> str:
    letters = (
        special if draw.randrange(13) == 0 else draw.choice(_LETTERS)
        for _ in range(3 + draw.randrange(most - 3))
    )
    return "".join(letters).strip()


def _extra(draw: random.Random, size: int, wanted: int) -> str:
    """Returns letters that make an event about as large as wanted, a fifth more or less."""
    if size > wanted:
        return ""
    missing = wanted - size
    spread = round(missing * 0.2)
    length = missing - spread + (draw.randrange(2 * spread) if spread else 0)
    return "".join(draw.choices(_LETTERS, k=length))
