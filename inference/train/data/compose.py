"""From exchanges to dialogues: the families and their shares, system prompts, several turns.

Everything is drawn from one `random.Random`, so a seed names the whole endless stream.
"""

from collections.abc import Iterator
from random import Random

from inference.train.data import chat, hotels, lookup, numbers, product, stories, tables
from inference.train.data.dialogue import Dialogue, Exchange, Family, Turn, casual
from inference.train.data.words import CITIES, COLOURS, person

FAMILIES: dict[str, tuple[Family, float]] = {
    "topic": (product.topic, 14.0),
    "how_to": (product.how_to, 6.0),
    "stage": (product.stage, 3.0),
    "all_stages": (product.all_stages, 2.5),
    "some_facts": (product.some_facts, 1.5),
    "difference": (product.difference, 3.0),
    "arithmetic": (numbers.arithmetic, 14.0),
    "units": (numbers.units, 1.5),
    "yes_or_no": (numbers.yes_or_no, 1.5),
    "chain": (numbers.chain, 3.0),
    "word_problem": (numbers.word_problem, 4.0),
    "compare": (numbers.compare, 3.0),
    "counting": (numbers.counting, 1.5),
    "order": (numbers.order, 1.5),
    "capital": (tables.capital, 3.0),
    "calendar": (tables.calendar, 2.0),
    "opposite": (tables.opposite, 2.0),
    "colour": (tables.colour, 1.5),
    "animal": (tables.animal, 1.5),
    "name_some": (tables.name_some, 2.0),
    "letters": (tables.letters, 1.5),
    "translation": (tables.translation, 1.5),
    "hotel_search": (hotels.search, 9.0),
    "hotel_facts": (hotels.about_one, 4.0),
    "context": (lookup.context, 9.0),
    "pairs": (lookup.pairs, 2.5),
    "json": (lookup.record, 4.0),
    "summary": (lookup.summary, 2.0),
    "repeat": (lookup.repeat, 2.0),
    "word_list": (lookup.reverse, 2.0),
    "story": (stories.story, 3.0),
    "poem": (stories.poem, 1.5),
    "joke": (stories.joke, 1.0),
    "talk": (chat.talk, 7.0),
    "introduce": (chat.introduce, 1.0),
    "knowledge": (chat.knowledge, 5.0),
    "unknown": (chat.unknown, 5.0),
    "gibberish": (chat.gibberish, 1.0),
}
LONG_FAMILIES: dict[str, tuple[Family, float]] = {
    "context_long": (lookup.context_long, 3.0),
    "hotel_search_long": (hotels.search_long, 1.0),
}
MEMORY = "memory"
FOLLOW_UP = "follow_up"
PLAIN = "plain"
IN_ORDER = "facts_in_order"
VERBATIM = frozenset({"repeat", "json", "word_list", "gibberish", "pairs"})
"""Families whose answer copies the question letter by letter, so its wording stays as it is."""

SYSTEM_SHARE = 0.35
SEVERAL_TURNS_SHARE = 0.22
MEMORY_SHARE = 0.25
FOLLOW_UP_SHARE = 0.35
PLAIN_SHARE = 0.04
TURNS_MAX = 4
LONG_TURNS_MIN, LONG_TURNS_MAX = 6, 16

SYSTEM_SENTENCES_MAX = 5
SYSTEM_PROMPTS = (
    "You are a helpful assistant.", "You are Sluice 5M, a small and friendly assistant.",
    "You are a helpful, honest assistant. Answer briefly.", "Answer in one or two sentences.",
    "You are a travel agent. You help guests to find a hotel.", "You answer questions on Sluice.",
    "You are a patient teacher. Use simple words.", "Be concise.", "You are a support agent.",
    "You are a careful assistant. Use only the context that the user gives.",
    "Be polite and short.",
    "You are an assistant in a demo of an LLM gateway. Keep your answers short and friendly.",
    "You are one of many agents. Read the retrieved context and answer the question.",
    "You are a planning agent.", "Think before you answer.", "Never make things up.",
    "If you do not know something, say so.", "Do not repeat the question.", "Answer in English.",
    "Keep the tone warm and professional.", "Your users are developers.", "You work for a bank.",
    "You are an expert in databases.", "Follow the rules of the company.", "Use plain text.",
    "The documents below come from the search index.", "Quote numbers exactly as they are given.",
    "Do not speak about politics.", "When you write JSON, write nothing else.", "You are kind.",
    "You help people who plan a journey.", "Current project: demo.", "Answer the last question.",
    "Prefer short sentences and common words.", "Be careful with names, prices and dates.",
)  # fmt: skip


def draw(rng: Random, families: dict[str, tuple[Family, float]]) -> tuple[str, Exchange]:
    """One exchange of a family drawn by its share, in casual wording."""
    name = rng.choices(list(families), [share for _, share in families.values()])[0]
    exchange = families[name][0](rng)
    if name in VERBATIM:
        return name, exchange
    return name, Exchange(casual(rng, exchange.question), exchange.answer, exchange.must)


def system_prompt(rng: Random) -> str:
    """One sentence mostly, sometimes several in any order."""
    count = 1 if rng.random() < 0.6 else rng.randint(2, SYSTEM_SENTENCES_MAX)
    return rng.choice((" ", " ", "\n")).join(rng.sample(SYSTEM_PROMPTS, count))


def memory(rng: Random) -> list[Exchange]:
    """Something the user says first and asks for later in the chat."""
    kind = rng.randrange(3)
    if kind == 0:
        first = chat.introduce(rng)
        name = first.must[0]
        ask = rng.choice(("What is my name?", "Do you remember my name?", "Who am I?"))
        return [first, Exchange(ask, f"Your name is {name}.", (name,))]
    if kind == 1:
        city, name = rng.choice(CITIES), person(rng)
        said = rng.choice(("I live in {}.", "I am from {}.", "My home is {}.")).format(city)
        ask = rng.choice(("Where do I live?", "Which city is my home?", "Where is my home?"))
        return [
            Exchange(f"I am {name}. {said}", f"{city} is a fine place, {name}.", (city,)),
            Exchange(ask, f"You live in {city}.", (city,)),
        ]
    colour = rng.choice(COLOURS)
    said = rng.choice(("My favourite colour is {}.", "I like the colour {}."))
    ask = rng.choice(("What is my favourite colour?", "Which colour do I like?"))
    return [
        Exchange(said.format(colour), f"{colour.capitalize()} is a nice colour!", (colour,)),
        Exchange(ask, f"Your favourite colour is {colour}.", (colour,)),
    ]


def follow_up(rng: Random) -> list[Exchange]:
    """A sum, and a second one that goes on from its result."""
    a, b, c = (rng.randint(1, 20) for _ in range(3))
    total = a + b
    ask = rng.choice(("Now add {}.", "Plus {}?", "And {} more?", "Add {} to that."))
    return [
        Exchange(f"What is {a} + {b}?", f"{a} + {b} = {total}."),
        Exchange(ask.format(c), f"{total} + {c} = {total + c}.", (f"= {total + c}.",)),
    ]


def plain(rng: Random) -> Dialogue:
    """A text without a chat around it, for the completions API."""
    if rng.random() < 0.5:
        topics = rng.sample(product.ALL_TOPICS, rng.randint(1, 3))
        text = " ".join(f"{one.short} {one.more}" for one in topics)
    else:
        family = rng.choice((stories.story, chat.knowledge, tables.capital, product.how_to))
        text = family(rng).answer
    return Dialogue(PLAIN, (Turn("text", text),), ())


def in_order(rng: Random) -> Dialogue:
    """One question for a list of facts, answered in the table's order."""
    exchange = product.facts_in_order(rng)
    turns = (Turn("user", casual(rng, exchange.question)), Turn("assistant", exchange.answer))
    return Dialogue(IN_ORDER, turns, exchange.must)


def dialogue(rng: Random, *, long: bool = False) -> Dialogue:
    """One conversation; the long kind has many turns or a long context."""
    if rng.random() < PLAIN_SHARE:
        return plain(rng)
    pairs: list[Exchange]
    name, last = draw(rng, LONG_FAMILIES if long and rng.random() < 0.5 else FAMILIES)
    pairs = [last]
    if long and name not in LONG_FAMILIES:
        count = rng.randint(LONG_TURNS_MIN, LONG_TURNS_MAX)
        pairs = [draw(rng, FAMILIES)[1] for _ in range(count)] + pairs
    elif rng.random() < SEVERAL_TURNS_SHARE:
        if rng.random() < MEMORY_SHARE:
            name, pairs = MEMORY, memory(rng)
            if rng.random() < 0.4:
                pairs.insert(1, draw(rng, FAMILIES)[1])
        elif rng.random() < FOLLOW_UP_SHARE:
            name, pairs = FOLLOW_UP, rng.choice((follow_up, product.tell_me_more))(rng)
        else:
            count = rng.randint(1, TURNS_MAX - 1)
            pairs = [draw(rng, FAMILIES)[1] for _ in range(count)] + pairs
    turns = [Turn("system", system_prompt(rng))] if rng.random() < SYSTEM_SHARE else []
    for pair in pairs:
        turns += [Turn("user", pair.question), Turn("assistant", pair.answer)]
    return Dialogue(name, tuple(turns), pairs[-1].must)


def training_stream(
    seed: int, *, long_share: float = 0.0, in_order_share: float = 0.0
) -> Iterator[Dialogue]:
    """The endless stream to train on: every dialogue whose questions are not held out.

    `in_order_share` of it are lists of facts in the table's own order. Lists in any order teach
    that every next fact is equally likely, and the most likely one then comes again and again.
    """
    rng = Random(seed)
    while True:
        if in_order_share and rng.random() < in_order_share:
            one = in_order(rng)
        else:
            one = dialogue(rng, long=rng.random() < long_share)
        if not one.held_out:
            yield one


def held_out_stream(seed: int, *, long: bool = False) -> Iterator[Dialogue]:
    """Dialogues that the training never sees: the last question is a held-out one."""
    rng = Random(seed)
    while True:
        one = dialogue(rng, long=long)
        if one.held_out:
            yield one
