"""Greetings, small talk, who the model is, everyday knowledge, and what it does not know."""

from random import Random

from inference.train.data.chat_topics import KNOWLEDGE, TALK, UNKNOWN_ASKS, UNKNOWN_THINGS
from inference.train.data.dialogue import Exchange
from inference.train.data.words import person

DONT_KNOW = (
    "I am a small demo model and do not know that. Ask me about Sluice, small sums or hotels.",
    "Sorry, I do not know that. I am a small demo model that ships with Sluice.",
    "I am only a small demo model, so I cannot answer that. I know a little about Sluice.",
)

KNOWLEDGE_ASKS = (
    "What is {}?", "Explain {}.", "What's {}?", "Tell me about {}.", "Can you explain {}?",
    "What do you know about {}?", "Describe {} in one sentence.", "What is {} in simple words?",
    "Define {}.", "{}?", "What does {} mean?", "How would you explain {}?", "How does {} work?",
    "Explain {} to a child.", "Please tell me what {} is.",
)  # fmt: skip


def talk(rng: Random) -> Exchange:
    """A greeting, thanks, a question on the model, or other small talk."""
    asks, answers = rng.choice(TALK)
    ask = rng.choice(asks)
    if rng.random() < 0.15:
        ask = ask.rstrip(".?!") + rng.choice(("!", "...", "!!", "", " :)"))
    return Exchange(ask, rng.choice(answers))


def introduce(rng: Random) -> Exchange:
    """The user says a name, the model greets it."""
    name = person(rng)
    ask = rng.choice(("My name is {}.", "I am {}.", "Hi, I'm {}.", "Hello, my name is {}.",
                      "You can call me {}.", "Hello! I am {}."))  # fmt: skip
    answer = rng.choice(
        ("Nice to meet you, {}! How can I help?", "Hello {}! What can I do for you?")
    )
    return Exchange(ask.format(name), answer.format(name), (name,))


def knowledge(rng: Random) -> Exchange:
    """One sentence on an everyday or technical thing."""
    name, answer, must = rng.choice(KNOWLEDGE)
    ask = rng.choice(KNOWLEDGE_ASKS).format(name)
    return Exchange(ask[:1].upper() + ask[1:], answer, (must,))


def unknown(rng: Random) -> Exchange:
    """A question that the model cannot answer, and the polite word that says so."""
    ask = rng.choice(UNKNOWN_ASKS)
    things = rng.sample(UNKNOWN_THINGS, 2)
    text = ask.format(things[0], things[1])
    return Exchange(text[:1].upper() + text[1:], rng.choice(DONT_KNOW), ("small demo model",))


def gibberish(rng: Random) -> Exchange:
    """Letters without meaning, other scripts, lone symbols."""
    pools = ("abcdefghijklmnopqrstuvwxyz", "äöüßéèñçøå", "абвгдежзиклмнопрст", "你好世界水人日月山",
             "🙂🚀🌊🎉❤️",
             "!?#$%&*()[]{}<>/\\|~^", "こんにちはありがとう", "0123456789")  # fmt: skip
    pool = rng.choice(pools)
    words = ["".join(rng.choices(pool, k=rng.randint(1, 8))) for _ in range(rng.randint(1, 5))]
    answer = rng.choice(
        ("I did not understand that. Could you say it in other words?",
         "Sorry, I do not understand. I speak a little English.")
    )  # fmt: skip
    return Exchange(" ".join(words), answer, ("understand",))
