"""Makes events of a shop: `python shop_events.py orders | kappa produce orders -`."""

import argparse
import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

COUNTRIES = ("AT", "DE", "FR", "IT")
NAMES = ("Ada", "Bob", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hana")
PRODUCTS = {
    "tea": ("food", 4.5),
    "jam": ("food", 3.25),
    "pen": ("office", 1.99),
    "lamp": ("home", 39.0),
    "rug": ("home", 120.0),
}


def events(seed: int = 1, count: int = 100) -> dict[str, list[dict[str, Any]]]:
    """Draws customers and products, `count` orders, and the first customer's move to Spain."""
    draw = random.Random(seed)
    customers = [
        {"id": f"c{number}", "name": name, "country": draw.choice(COUNTRIES)}
        for number, name in enumerate(NAMES, 1)
    ]
    products = [
        {"sku": sku, "category": category, "price": price}
        for sku, (category, price) in PRODUCTS.items()
    ]
    at = datetime(2026, 1, 31, 8, tzinfo=UTC)
    orders = []
    for number in range(1, count + 1):
        at += timedelta(seconds=draw.randrange(1, 600))
        order = {
            "id": f"o{number}",
            "customer": draw.choice(customers)["id"],
            "product": draw.choice(products)["sku"],
            "quantity": draw.randrange(1, 5),
            "at": at.isoformat(),
        }
        orders.append(order)
    moves = [{**customers[0], "country": "ES"}]
    return {"customers": customers, "products": products, "orders": orders, "moves": moves}


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("what", choices=sorted(events(count=0)))
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--count", type=int, default=100)
    given = arguments.parse_args()
    for event in events(given.seed, given.count)[given.what]:
        print(json.dumps(event))
