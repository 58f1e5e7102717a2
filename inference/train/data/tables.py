"""Small tables of general facts: capitals, calendar, colours, opposites, animals, short answers."""

from random import Random

from inference.train.data.dialogue import Exchange, listed, upper_first
from inference.train.data.words import DAYS, MONTH_DAYS, MONTHS

CAPITALS = {
    "France": "Paris", "Italy": "Rome", "Germany": "Berlin", "Austria": "Vienna",
    "Norway": "Oslo", "Spain": "Madrid", "Portugal": "Lisbon", "Greece": "Athens",
    "Ireland": "Dublin", "Poland": "Warsaw", "Egypt": "Cairo", "Japan": "Tokyo",
    "India": "New Delhi", "England": "London", "the United Kingdom": "London",
    "Switzerland": "Bern", "Finland": "Helsinki", "Sweden": "Stockholm", "Denmark": "Copenhagen",
    "the Netherlands": "Amsterdam", "Belgium": "Brussels", "Hungary": "Budapest", "Peru": "Lima",
    "Canada": "Ottawa", "Australia": "Canberra", "China": "Beijing", "Brazil": "Brasilia",
    "the United States": "Washington", "Mexico": "Mexico City", "Argentina": "Buenos Aires",
    "Chile": "Santiago", "Turkey": "Ankara", "Kenya": "Nairobi", "South Korea": "Seoul",
    "Thailand": "Bangkok", "Iceland": "Reykjavik", "Czechia": "Prague", "Ukraine": "Kyiv",
    "Romania": "Bucharest", "Bulgaria": "Sofia", "Croatia": "Zagreb", "Cuba": "Havana",
}  # fmt: skip

OPPOSITES = {
    "hot": "cold", "big": "small", "fast": "slow", "up": "down", "open": "closed", "day": "night",
    "light": "dark", "old": "young", "happy": "sad", "rich": "poor", "full": "empty",
    "high": "low", "hard": "soft", "wet": "dry", "early": "late", "long": "short",
    "loud": "quiet", "clean": "dirty", "strong": "weak", "near": "far", "left": "right",
    "first": "last", "black": "white", "good": "bad", "heavy": "light", "true": "false",
    "win": "lose", "buy": "sell", "push": "pull", "begin": "end", "easy": "difficult",
    "thick": "thin", "wide": "narrow", "brave": "afraid", "cheap": "expensive",
}  # fmt: skip

COLOUR_OF = {
    "the sky": "blue", "grass": "green", "snow": "white", "coal": "black", "a banana": "yellow",
    "blood": "red", "milk": "white", "a lemon": "yellow", "the sea": "blue", "chocolate": "brown",
    "a carrot": "orange", "a tomato": "red", "a leaf": "green", "the sun": "yellow",
    "a flamingo": "pink", "the night": "black", "an orange": "orange", "an elephant": "grey",
}  # fmt: skip

MIXES = {
    ("red", "blue"): "purple", ("red", "yellow"): "orange", ("blue", "yellow"): "green",
    ("black", "white"): "grey", ("red", "white"): "pink",
}  # fmt: skip

SOUNDS = {
    "dog": "barks", "cat": "meows", "cow": "moos", "duck": "quacks", "lion": "roars",
    "sheep": "bleats", "horse": "neighs", "frog": "croaks", "pig": "oinks",
    "bee": "buzzes", "snake": "hisses", "wolf": "howls", "bird": "sings",
}  # fmt: skip

PLURALS = {
    "child": "children", "mouse": "mice", "foot": "feet", "tooth": "teeth", "man": "men",
    "woman": "women", "goose": "geese", "book": "books", "city": "cities", "leaf": "leaves",
    "box": "boxes", "bus": "buses", "key": "keys", "story": "stories", "sheep": "sheep",
}  # fmt: skip

TRANSLATIONS = {
    "hello": ("Hallo", "bonjour", "hola", "ciao"), "thank you": ("danke", "merci", "gracias",
                                                                 "grazie"),
    "water": ("Wasser", "eau", "agua", "acqua"), "bread": ("Brot", "pain", "pan", "pane"),
    "house": ("Haus", "maison", "casa", "casa"), "dog": ("Hund", "chien", "perro", "cane"),
    "cat": ("Katze", "chat", "gato", "gatto"), "red": ("rot", "rouge", "rojo", "rosso"),
    "yes": ("ja", "oui", "si", "si"), "no": ("nein", "non", "no", "no"),
    "good": ("gut", "bon", "bueno", "buono"), "day": ("Tag", "jour", "dia", "giorno"),
    "night": ("Nacht", "nuit", "noche", "notte"), "book": ("Buch", "livre", "libro", "libro"),
    "friend": ("Freund", "ami", "amigo", "amico"), "goodbye": ("tschuess", "au revoir", "adios",
                                                               "ciao"),
}  # fmt: skip
LANGUAGES = ("German", "French", "Spanish", "Italian")

KINDS = {
    "fruits": ("apple", "pear", "banana", "orange", "lemon", "cherry", "plum", "grape"),
    "colours": ("red", "blue", "green", "yellow", "purple", "orange", "black", "white"),
    "colors": ("red", "blue", "green", "yellow", "purple", "orange", "black", "white"),
    "animals": ("dog", "cat", "horse", "fox", "bear", "owl", "rabbit", "duck"),
    "vegetables": ("carrot", "potato", "onion", "tomato", "bean", "pea", "cabbage"),
    "cities": ("Paris", "Rome", "Tokyo", "Berlin", "Cairo", "Lima", "Oslo", "London"),
    "countries": ("France", "Japan", "Brazil", "Kenya", "Canada", "India", "Norway"),
    "planets": ("Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn", "Uranus", "Neptune"),
    "metals": ("iron", "copper", "gold", "silver", "tin", "zinc"),
    "instruments": ("piano", "violin", "guitar", "flute", "drum", "trumpet"),
    "programming languages": ("Python", "C", "Java", "Rust", "Go", "JavaScript"),
    "birds": ("owl", "swan", "crow", "robin", "eagle", "duck"),
}


def capital(rng: Random) -> Exchange:
    """The capital of a country, asked both ways round."""
    country, city = rng.choice(list(CAPITALS.items()))
    if rng.random() < 0.2 and city != "London":
        text = rng.choice(
            ("Which country has the capital {}?", "{} is the capital of which country?")
        )
        return Exchange(text.format(city), f"{city} is the capital of {country}.", (country,))
    text = rng.choice(
        ("What is the capital of {}?", "Which city is the capital of {}?", "Capital of {}?",
         "Name the capital of {}.", "Do you know the capital of {}?", "What's the capital of {}?",
         "Tell me the capital city of {}.", "the capital of {} is?", "What is {}'s capital?",
         "Can you tell me what the capital of {} is?")
    )  # fmt: skip
    return Exchange(text.format(country), f"The capital of {country} is {city}.", (city,))


def calendar(rng: Random) -> Exchange:
    kind = rng.randrange(6)
    day, month = rng.randrange(7), rng.randrange(12)
    if kind == 0:
        text = rng.choice(
            ("What day comes after {}?", "Which day follows {}?", "What is the day after {}?")
        )
        after = DAYS[(day + 1) % 7]
        return Exchange(text.format(DAYS[day]), f"The day after {DAYS[day]} is {after}.", (after,))
    if kind == 1:
        text = rng.choice(("What day comes before {}?", "What is the day before {}?"))
        before = DAYS[day - 1]
        return Exchange(
            text.format(DAYS[day]), f"The day before {DAYS[day]} is {before}.", (before,)
        )
    if kind == 2:
        text = rng.choice(("What month comes after {}?", "Which month follows {}?"))
        after = MONTHS[(month + 1) % 12]
        return Exchange(
            text.format(MONTHS[month]), f"The month after {MONTHS[month]} is {after}.", (after,)
        )
    if kind == 3:
        text = rng.choice(("How many days does {} have?", "How many days are there in {}?"))
        extra = " In a leap year it has 29." if month == 1 else ""
        answer = f"{MONTHS[month]} has {MONTH_DAYS[month]} days.{extra}"
        return Exchange(text.format(MONTHS[month]), answer, (f"has {MONTH_DAYS[month]} days",))
    if kind == 4:
        text = rng.choice(("List the days of the week.", "What are the days of the week?",
                           "Name the seven days of the week.", "Name all weekdays."))  # fmt: skip
        return Exchange(text, f"The days of the week are {listed(DAYS)}.", DAYS)
    text = rng.choice(("List the months of the year.", "What are the twelve months?",
                       "Name all the months.", "Tell me the months of the year."))  # fmt: skip
    return Exchange(text, f"The months of the year are {listed(MONTHS)}.", MONTHS)


def opposite(rng: Random) -> Exchange:
    word, other = rng.choice(list(OPPOSITES.items()))
    if rng.random() < 0.3 and other not in OPPOSITES:
        word, other = other, word
    text = rng.choice(
        ("What is the opposite of {}?", "Opposite of {}?", "What's the opposite of {}?",
         "Give me the opposite of {}.", 'What is the opposite of the word "{}"?',
         "Which word means the opposite of {}?")
    )  # fmt: skip
    return Exchange(text.format(word), f"The opposite of {word} is {other}.", (f"is {other}",))


def colour(rng: Random) -> Exchange:
    """What colour a thing has, and what two colours give when mixed."""
    if rng.random() < 0.3:
        (a, b), mixed = rng.choice(list(MIXES.items()))
        text = rng.choice(("What do {} and {} make?", "What colour do you get from {} and {}?",
                           "If I mix {} and {}, what colour do I get?"))  # fmt: skip
        first, second = rng.sample((a, b), 2)
        return Exchange(
            text.format(first, second), f"{upper_first(first)} and {second} make {mixed}.", (mixed,)
        )
    thing, shade = rng.choice(list(COLOUR_OF.items()))
    word = rng.choice(("colour", "color"))
    text = rng.choice(("What {} is {}?", "Which {} is {}?", "What {} does {} have?",
                       "Tell me what {} {} is."))  # fmt: skip
    return Exchange(text.format(word, thing), f"{upper_first(thing)} is {shade}.", (f"is {shade}",))


def animal(rng: Random) -> Exchange:
    if rng.random() < 0.5:
        creature, sound = rng.choice(list(SOUNDS.items()))
        text = rng.choice(("What sound does a {} make?", "What does a {} do?",
                           "Which sound does the {} make?", "How does a {} sound?"))  # fmt: skip
        return Exchange(text.format(creature), f"A {creature} {sound}.", (sound,))
    one, many = rng.choice(list(PLURALS.items()))
    text = rng.choice(
        ("What is the plural of {}?", "Plural of {}?", 'How do you write more than one "{}"?')
    )
    return Exchange(text.format(one), f"The plural of {one} is {many}.", (f"is {many}",))


def name_some(rng: Random) -> Exchange:
    kind, members = rng.choice(list(KINDS.items()))
    count = rng.randint(2, 5)
    words = ("two", "three", "four", "five")
    number = str(count) if rng.random() < 0.4 else words[count - 2]
    text = rng.choice(("Name {} {}.", "List {} {}.", "Give me {} {}.", "Tell me {} {}.",
                       "Can you name {} {}?", "What are {} {}?"))  # fmt: skip
    start = rng.randrange(len(members) - count + 1)
    chosen = members[start : start + count]
    word = words[count - 2].capitalize()
    answer = f"{word} {kind} are {listed(chosen)}."
    return Exchange(text.format(number, kind), answer, (f"{word} {kind} are",))


def letters(rng: Random) -> Exchange:
    word = rng.choice(("cat", "dog", "house", "water", "sluice", "token", "river", "green", "table",
                       "apple", "stone", "light", "music", "paper", "queue", "cache"))  # fmt: skip
    kind = rng.randrange(3)
    if kind == 0:
        text = rng.choice(('How do you spell "{}"?', "Spell {}.", "Please spell the word {}."))
        spelled = "-".join(word.upper())
        return Exchange(text.format(word), f"{word} is spelled {spelled}.", (spelled,))
    if kind == 1:
        text = rng.choice(("What is the first letter of {}?", "Which letter does {} start with?"))
        return Exchange(text.format(word), f"{word} starts with {word[0].upper()}.", ())
    n = rng.randrange(25)
    letter, after = chr(65 + n), chr(66 + n)
    text = rng.choice(("What letter comes after {}?", "Which letter follows {}?"))
    return Exchange(text.format(letter), f"After {letter} comes {after}.", (f"comes {after}.",))


def translation(rng: Random) -> Exchange:
    """One common word in one of four languages."""
    word, others = rng.choice(list(TRANSLATIONS.items()))
    n = rng.randrange(len(LANGUAGES))
    text = rng.choice(
        ("What is {} in {}?", "How do you say {} in {}?", 'Translate "{}" into {}.', "{} in {}?",
         "Translate {} to {}.", "What does {} mean in {}?", "How do I say {} in {}?")
    )  # fmt: skip
    answer = f"{upper_first(word)} in {LANGUAGES[n]} is {others[n]}."
    return Exchange(text.format(word, LANGUAGES[n]), answer, (f"is {others[n]}",))
