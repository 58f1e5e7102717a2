"""Answers that are found in the prompt: facts in a context, lists, records as JSON.

This teaches the model to copy from its context, which is what retrieval needs.
"""

import json
from random import Random

from inference.train.data.dialogue import Exchange, listed
from inference.train.data.words import (
    CITIES,
    COLOURS,
    DAYS,
    NAMES,
    OBJECTS,
    THINGS,
    coined,
    person,
)

FACTS_LONG_MIN, FACTS_LONG_MAX = 20, 70


def code(rng: Random) -> str:
    return str(rng.randint(1000, 9999))


def hour(rng: Random) -> str:
    return f"{rng.randint(8, 19)}:{rng.choice(('00', '30'))}"


def fact(rng: Random) -> tuple[str, str, str, str]:
    """One fact: its sentence, the question for it, the answer, and the piece that counts."""
    kind = rng.randrange(9)
    name, colour = person(rng), rng.choice(COLOURS)
    thing = f"{colour} {rng.choice(OBJECTS)}" if rng.random() < 0.7 else f"{coined(rng)} machine"
    if kind == 0:
        value = code(rng)
        text = f"The code of the {thing} is {value}."
        return text, f"What is the code of the {thing}?", text, value
    if kind == 1:
        city = rng.choice(CITIES) if rng.random() < 0.8 else coined(rng)
        text = f"{name} lives in {city}."
        return text, f"Where does {name} live?", text, city
    if kind == 2:
        price = str(rng.randint(2, 200))
        text = f"The {thing} costs {price} dollars."
        return text, f"How much does the {thing} cost?", text, f"costs {price} dollars"
    if kind == 3:
        day, when = rng.choice(DAYS), hour(rng)
        text = f"The meeting with {name} is on {day} at {when}."
        return text, f"When is the meeting with {name}?", text, f"{day} at {when}"
    if kind == 4:
        text = f"The {thing} belongs to {name}."
        return text, f"Who owns the {thing}?", text, name
    if kind == 5:
        place = rng.choice(("kitchen", "garden", "office", "attic", "cellar", "hall", "garage"))
        text = f"The {thing} is in the {place}."
        return text, f"Where is the {thing}?", text, place
    if kind == 6:
        age = str(rng.randint(5, 90))
        text = f"{name} is {age} years old."
        return text, f"How old is {name}?", text, f"{age} years"
    if kind == 7:
        room = str(rng.randint(1, 400))
        text = f"{name} works in room {room}."
        return text, f"In which room does {name} work?", text, f"room {room}"
    liked = rng.choice(THINGS)
    text = f"{name} likes {liked}."
    return text, f"What does {name} like?", text, liked


def facts(rng: Random, count: int) -> list[tuple[str, str, str, str]]:
    """Facts with different questions, so that each has one answer."""
    found: dict[str, tuple[str, str, str, str]] = {}
    while len(found) < count:
        one = fact(rng)
        found.setdefault(one[1], one)
    return list(found.values())


def layout(rng: Random, sentences: list[str]) -> str:
    """The context as bullets, numbered lines or running text."""
    kind = rng.randrange(3)
    if kind == 0:
        return "\n".join(f"- {sentence}" for sentence in sentences)
    if kind == 1:
        return "\n".join(f"[{n}] {sentence}" for n, sentence in enumerate(sentences, 1))
    return " ".join(sentences)


def context_of(rng: Random, count: int) -> Exchange:
    """A context of `count` facts and one question on it, answered by it or not."""
    known = facts(rng, count + 1)
    missing = known.pop()
    body = layout(rng, [one[0] for one in known])
    absent = rng.random() < 0.12
    _, question, answer, key = missing if absent else rng.choice(known)
    if absent:
        answer, key = "The context does not say that.", "does not say"
    frame = rng.choice(
        ("Context:\n{body}\nQuestion: {question}", "Context:\n{body}\n\n{question}",
         "Use this context to answer.\n{body}\nQuestion: {question}",
         "{body}\n{question}", "Here is what I know:\n{body}\n{question}",
         "{question}\nContext:\n{body}", "Read this:\n{body}\nNow answer: {question}")
    )  # fmt: skip
    return Exchange(frame.format(body=body, question=question), answer, (key,))


def context(rng: Random) -> Exchange:
    return context_of(rng, rng.randint(1, 9))


def context_long(rng: Random) -> Exchange:
    """A context of about a thousand tokens, as retrieval makes it."""
    return context_of(rng, rng.randint(FACTS_LONG_MIN, FACTS_LONG_MAX))


def record(rng: Random) -> Exchange:
    """A sentence turned into JSON with the keys that are asked for."""
    name, city, age = person(rng), rng.choice(CITIES), rng.randint(5, 90)
    if rng.random() < 0.5:
        text = f"{name} is {age} years old and lives in {city}."
        values: dict[str, object] = {"name": name, "age": age, "city": city}
    else:
        item, price = f"{rng.choice(COLOURS)} {rng.choice(OBJECTS)}", rng.randint(2, 200)
        text = f"The {item} costs {price} dollars and is sold in {city}."
        values = {"name": item, "price": price, "city": city}
    keys = rng.sample(list(values), rng.randint(2, 3))
    asked = rng.choice(("Answer as JSON with keys {}:", "Turn this into JSON with keys {}:",
                        "Give me JSON with keys {} for this:",
                        "Extract {} as JSON:")).format(listed(keys))  # fmt: skip
    answer = json.dumps({key: values[key] for key in keys})
    prompt = f"{asked} {text}" if rng.random() < 0.6 else f"{text}\n{asked.rstrip(':')}."
    return Exchange(prompt, answer, (answer,))


def pairs(rng: Random) -> Exchange:
    """Look up a key in a small list of keys and values."""
    keys = rng.sample(OBJECTS, rng.randint(2, 8))
    table = {key: rng.choice((code(rng), rng.choice(CITIES), person(rng))) for key in keys}
    body = rng.choice(("\n", ", ")).join(f"{key}: {value}" for key, value in table.items())
    key = rng.choice(keys)
    question = rng.choice(("What is the value of {}?", "What stands for {}?", "Look up {}.", "{}?",
                           "Which value does {} have?"))  # fmt: skip
    answer = f"The value of {key} is {table[key]}."
    return Exchange(f"{body}\n{question.format(key)}", answer, (table[key],))


def summary(rng: Random) -> Exchange:
    """A list summed up in one or two sentences: how many, which, what they cost."""
    if rng.random() < 0.5:
        items = rng.sample(THINGS, rng.randint(3, 6))
        body = rng.choice(("\n- ", ", ")).join(items)
        question = rng.choice(
            ("Summarize this list:", "Sum up this list:", "What is on this list?")
        )
        answer = f"The list has {len(items)} items: {listed(items)}."
        return Exchange(f"{question}\n- {body}", answer, (answer,))
    people = rng.sample(NAMES, rng.randint(2, 4))
    towns = [rng.choice(CITIES) for _ in people]
    body = " ".join(f"{who} went to {town}." for who, town in zip(people, towns, strict=True))
    question = rng.choice(
        ("Summarize:", "Give me a short summary:", "Summarize this in one sentence:")
    )
    journeys = [f"{who} to {town}" for who, town in zip(people, towns, strict=True)]
    answer = f"{len(people)} people went on a journey: {listed(journeys)}."
    return Exchange(f"{question} {body}", answer, (answer,))


def repeat(rng: Random) -> Exchange:
    words = rng.sample((*THINGS, *OBJECTS, *COLOURS, *CITIES, *NAMES), rng.randint(1, 7))
    words = [word if rng.random() < 0.8 else coined(rng).lower() for word in words]
    text = " ".join(words)
    frame = rng.choice(("Repeat after me: {}", "Say: {}",
                        "Repeat: {}", 'Say "{}".', "Please repeat {}",
                        "Echo this: {}"))  # fmt: skip
    return Exchange(frame.format(text), text, (text,))


def reverse(rng: Random) -> Exchange:
    """The first, the last, the number or the other order of a few words."""
    items = rng.sample((*THINGS, *OBJECTS, *COLOURS), rng.randint(3, 6))
    body = ", ".join(items)
    kind = rng.randrange(4)
    if kind == 0:
        return Exchange(f"What is the first word of this list: {body}?",
                        f"The first word is {items[0]}.", (f"is {items[0]}.",))  # fmt: skip
    if kind == 1:
        return Exchange(f"What is the last word of this list: {body}?",
                        f"The last word is {items[-1]}.", (f"is {items[-1]}.",))  # fmt: skip
    if kind == 2:
        return Exchange(f"How many words are in this list: {body}?",
                        f"The list has {len(items)} words.",
                        (f"has {len(items)} words",))  # fmt: skip
    answer = ", ".join(reversed(items)) + "."
    return Exchange(f"Reverse this list: {body}", answer, (answer,))
