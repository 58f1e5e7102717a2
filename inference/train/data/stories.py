"""Short stories and poems by template, and small pieces on everyday things: the longer answers."""

from random import Random

from inference.train.data.dialogue import Exchange, with_articles
from inference.train.data.words import ANIMALS, COLOURS, NAMES, OBJECTS, PLACES

MOODS = ("brave", "curious", "shy", "clever", "kind", "small", "wise", "happy", "quiet", "patient")
OPENINGS = (
    "Once upon a time there was a {mood} {who} named {name}.",
    "Long ago, near a {place}, lived a {mood} {who} called {name}.",
    "In a small {place} lived {name}, a {mood} {who}.",
)
FINDS = (
    "One morning {name} found a {colour} {thing} beside the path.",
    "One day {name} saw a {colour} {thing} floating on the water.",
    "On a rainy evening {name} heard a noise and found a {colour} {thing}.",
)
WONDERS = (
    "Nobody in the {place} knew who had lost it.",
    "It looked old, and it shone in the light.",
    "It was too heavy to carry alone.",
)
MEETINGS = (
    "So {name} asked the {other} for help, and the two became friends.",
    "A {other} came along and said: I know where it belongs.",
    "Together with a {other}, {name} walked all day and all night.",
)
ENDINGS = (
    "In the end they brought the {thing} home, and everyone in the {place} was glad.",
    "At last they found the owner, who thanked them with a warm meal.",
    "From that day on the {thing} stood in the middle of the {place}, and nobody forgot {name}.",
)
MORALS = (
    "And so {name} learned that a friend makes every load light.",
    "And if you walk there today, you can still see it.",
    "That night {name} slept better than ever before.",
)

POEMS = (
    "The {place} lies still in morning light,\nA {colour} {thing} shines calm and bright.\n"
    "The {animal} wakes and looks around,\nAnd listens to a distant sound.",
    "A {animal} sat beside the door\nAnd asked the {thing} for something more.\n"
    "The {thing} said nothing, still and {colour},\nAnd so the evening turned to slumber.",
    "Soft is the wind above the {place},\nThe {animal} runs its quiet race.\n"
    "The {colour} {thing} is left behind,\nWith peace of heart and peace of mind.",
)
HAIKU = (
    "Morning at the {place},\na {animal} waits in silence,\nthe light comes slowly.",
    "Rain on the {place},\nthe {animal} is not afraid,\ndrops fall one by one.",
    "Tokens like water,\nthey pass the gate one by one,\nthe stream never ends.",
)
JOKES = (
    "Why did the token cross the gateway? To get to the other prompt.",
    "Why was the cache so happy? It had a hit every day.",
    "What did the router say to the packet? I know the way.",
    "Why did the model go to school? It wanted to learn by example.",
    "Why do queues never argue? They wait for their turn.",
    "What is a node's favourite drink? A fresh stream.",
)


def story(rng: Random) -> Exchange:
    """A story of six to seven sentences on what was asked for."""
    animal, other = rng.sample(ANIMALS, 2)
    place, thing = rng.choice(PLACES), rng.choice(OBJECTS)
    who = rng.choice((animal, animal, "robot", "girl", "boy", "miller", "sailor"))
    words = {
        "who": who, "other": other, "place": place, "thing": thing, "name": rng.choice(NAMES),
        "colour": rng.choice(COLOURS), "mood": rng.choice(MOODS),
    }  # fmt: skip
    parts = (OPENINGS, FINDS, WONDERS, MEETINGS, ENDINGS, MORALS)
    text = " ".join(rng.choice(part).format(**words) for part in parts)
    ask = rng.choice(
        ("Tell me a story.", "Write a short story.", "Tell me a story about a {who}.",
         "Write a story about a {who} and a {thing}.", "Write a short story about a {who}.",
         "I want to hear a story about a {who} in a {place}.", "Can you tell me a story?",
         "Tell me a bedtime story about a {who}.", "Make up a story with a {thing} in it.",
         "Write a long story about a {who}.", "Tell me something long.", "Write a few sentences.")
    )  # fmt: skip
    return Exchange(with_articles(ask.format(**words)), with_articles(text))


def poem(rng: Random) -> Exchange:
    words = {
        "animal": rng.choice(ANIMALS), "place": rng.choice(PLACES), "thing": rng.choice(OBJECTS),
        "colour": rng.choice(COLOURS[:6]),
    }  # fmt: skip
    if rng.random() < 0.35:
        ask = rng.choice(("Write a haiku.", "Write a haiku about a {place}.",
                          "A haiku about a {animal}, please.",
                          "Can you write a haiku?"))  # fmt: skip
        text = rng.choice(HAIKU if "{" not in ask else HAIKU[:2])
        return Exchange(
            with_articles(ask.format(**words)), with_articles(text.format(**words)), ("\n",)
        )
    ask = rng.choice(
        ("Write a poem.", "Write a short poem about a {animal}.", "Write a poem about the {place}.",
         "Can you write a poem about a {animal} and a {thing}?", "A short poem, please.",
         "Write me a poem about a {thing}.", "Tell me a poem.")
    )  # fmt: skip
    text = rng.choice(POEMS).format(**words)
    return Exchange(with_articles(ask.format(**words)), with_articles(text), ("\n",))


def joke(rng: Random) -> Exchange:
    ask = rng.choice(("Tell me a joke.", "Do you know a joke?", "Make me laugh.",
                      "Another joke, please.",
                      "Say something funny.", "Can you tell me a joke?", "joke?"))  # fmt: skip
    return Exchange(ask, rng.choice(JOKES))
