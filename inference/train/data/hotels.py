"""Hotel search: a list of hotels in the prompt, wishes in the question, one pick with its reason.

The answer goes through the list one by one before it picks, which a model this small can follow.
"""

import json
from dataclasses import dataclass
from random import Random

from inference.train.data.dialogue import Exchange, listed
from inference.train.data.words import ANIMALS, CITIES, NAMES, coined

FIRST = ("Harbour", "Sea", "Park", "Royal", "Garden", "River", "Sunny", "Grand", "Old Town",
         "Mountain", "Lake", "Station", "Palace", "Blue", "Golden", "Green", "Crown", "Star",
         "Central", "Maple", "Aurora", "Bella", "Forest", "Bridge", "Castle")  # fmt: skip
SECOND = ("Hotel", "Inn", "View", "House", "Lodge", "Resort", "Rooms", "Suites")


@dataclass(frozen=True)
class Hotel:
    name: str
    price: int
    stars: int
    pool: bool


@dataclass(frozen=True)
class Wishes:
    """What the guest asks for; None and False mean that it does not matter."""

    price_max: int | None
    stars_min: int | None
    pool: bool

    def objection(self, hotel: Hotel) -> str | None:
        """The first reason why the hotel does not fit, or None."""
        if self.price_max is not None and hotel.price > self.price_max:
            return f"{hotel.price} dollars is over {self.price_max}"
        if self.stars_min is not None and hotel.stars < self.stars_min:
            return f"only {stars(hotel.stars)}"
        if self.pool and not hotel.pool:
            return "no pool"
        return None

    def phrase(self, rng: Random) -> str:
        parts = []
        if self.price_max is not None:
            limit = rng.choice(
                ("under {} dollars", "for at most {} dollars", "up to {} dollars",
                 "below {} dollars a night", "for less than ${}", "cheaper than {} dollars",
                 "under ${}", "with a price of at most {}")
            )  # fmt: skip
            parts.append(limit.format(self.price_max))
        if self.stars_min is not None:
            parts.append(
                rng.choice(("with at least {}", "with {} or more")).format(stars(self.stars_min))
            )
        if self.pool:
            parts.append(rng.choice(("with a pool", "with a pool", "that has a pool")))
        rng.shuffle(parts)
        return listed(parts)


def stars(count: int) -> str:
    """The count with the right word: 1 star, 3 stars."""
    return f"{count} star" if count == 1 else f"{count} stars"


def first_name(rng: Random) -> str:
    """The first word of a hotel's name: mostly from the list, sometimes quite another one."""
    if rng.random() < 0.65:
        return rng.choice(FIRST)
    return rng.choice((rng.choice(NAMES), rng.choice(ANIMALS).capitalize(), coined(rng)))


def make_hotels(rng: Random, count: int) -> list[Hotel]:
    firsts = [first_name(rng) for _ in range(count)]
    prices = rng.sample(range(40, 300, 5), count)
    return [
        Hotel(f"{first} {rng.choice(SECOND)}", price, rng.randint(1, 5), rng.random() < 0.55)
        for first, price in zip(firsts, prices, strict=True)
    ]


def make_wishes(rng: Random) -> Wishes:
    while True:
        wishes = Wishes(
            price_max=rng.randrange(80, 280, 10) if rng.random() < 0.7 else None,
            stars_min=rng.randint(2, 4) if rng.random() < 0.5 else None,
            pool=rng.random() < 0.5,
        )
        if wishes != Wishes(None, None, False):
            return wishes


def shown(rng: Random, hotels: list[Hotel]) -> str:
    """The list as it stands in a prompt, in one of three layouts."""
    layout = rng.randrange(5)
    lines = []
    for hotel in hotels:
        pool = "pool" if hotel.pool else "no pool"
        if layout == 0:
            lines.append(f"- {hotel.name}: {hotel.price} dollars, {stars(hotel.stars)}, {pool}")
        elif layout == 1:
            lines.append(f"{hotel.name} | {hotel.price} | {stars(hotel.stars)} | {pool}")
        elif layout == 2:
            lines.append(f"* {hotel.name} ({stars(hotel.stars)}, {pool}, {hotel.price} dollars)")
        elif layout == 3:
            lines.append(f"- {hotel.name}, ${hotel.price}, {stars(hotel.stars)}, {pool}")
        else:
            sentence = (
                f"{hotel.name} costs {hotel.price} dollars, has {stars(hotel.stars)} and {pool}"
            )
            lines.append(sentence + ".")
    return "\n".join(lines)


def verdict(hotels: list[Hotel], wishes: Wishes) -> tuple[str, Hotel | None]:
    """The walk through the list, and the cheapest hotel that fits."""
    notes, fitting = [], []
    for hotel in hotels:
        objection = wishes.objection(hotel)
        notes.append(f"{hotel.name}: {objection or 'fits'}.")
        if objection is None:
            fitting.append(hotel)
    best = min(fitting, key=lambda hotel: hotel.price) if fitting else None
    return " ".join(notes), best


def search_of(rng: Random, count: int) -> Exchange:
    """A search over a list of the given length."""
    hotels, wishes = make_hotels(rng, count), make_wishes(rng)
    notes, best = verdict(hotels, wishes)
    city = rng.choice(CITIES)
    question = rng.choice(
        ("Find me a hotel {}.", "Which hotel {} do you suggest?", "I need a hotel {}.",
         "Which hotel should I take? I want one {}.", "I look for a room {}.",
         "Please suggest a hotel in {city} {}.", "Which of these is a hotel {}?")
    ).format(wishes.phrase(rng), city=city)  # fmt: skip
    head = rng.choice(("Hotels in {}:", "Here are hotels in {}:", "Hotel list for {}:", "Hotels:"))
    table = head.format(city) + "\n" + shown(rng, hotels)
    prompt = f"{table}\n{question}" if rng.random() < 0.7 else f"{question}\n{table}"
    if best is None:
        return Exchange(prompt, f"{notes} So none of them fits your wishes.", ("So none of them",))
    pool = "a pool" if best.pool else "no pool"
    pick = f"So I suggest {best.name}"
    reason = f"it costs {best.price} dollars and has {stars(best.stars)} and {pool}."
    return Exchange(prompt, f"{notes} {pick}: {reason}", (pick,))


def search(rng: Random) -> Exchange:
    return search_of(rng, rng.randint(2, 5))


def search_long(rng: Random) -> Exchange:
    """A search over a longer list, for the long stage of the training."""
    return search_of(rng, rng.randint(8, 20))


def about_one(rng: Random) -> Exchange:
    """A question on one hotel of the list, or on the cheapest one; sometimes answered as JSON."""
    hotels = make_hotels(rng, rng.randint(2, 5))
    table = "Hotels:\n" + shown(rng, hotels)
    hotel = rng.choice(hotels)
    kind = rng.randrange(5)
    if kind == 0:
        text = rng.choice(("How much is {}?", "What does {} cost?", "What is the price of {}?"))
        answer = f"{hotel.name} costs {hotel.price} dollars."
    elif kind == 1:
        text = rng.choice(("Does {} have a pool?", "Is there a pool at {}?"))
        answer = (
            f"Yes, {hotel.name} has a pool." if hotel.pool else f"No, {hotel.name} has no pool."
        )
    elif kind == 2:
        text = rng.choice(("How many stars does {} have?", "How many stars has {}?"))
        answer = f"{hotel.name} has {stars(hotel.stars)}."
    elif kind == 3:
        text = rng.choice(("Give me {} as JSON with keys name and price.",
                           "Answer as JSON with keys name and price: {}"))  # fmt: skip
        answer = json.dumps({"name": hotel.name, "price": hotel.price})
    else:
        text = rng.choice(("Which is the cheapest?", "What is the cheapest hotel?"))
        hotel = min(hotels, key=lambda hotel: hotel.price)
        answer = f"The cheapest hotel is {hotel.name} with {hotel.price} dollars."
    return Exchange(f"{table}\n{text.format(hotel.name)}", answer, (answer,))
