"""Plain word lists that several families draw from: names, places, things, colours."""

from random import Random

NAMES = (
    "Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry", "Ida", "Jack", "Kate",
    "Leo", "Mia", "Noah", "Olga", "Paul", "Rosa", "Sam", "Tom", "Uma", "Vera", "Will", "Yara",
    "Zoe", "Alice", "Bob", "Carol", "Dan", "Eva", "Frank", "Hana", "Ivan", "Julia", "Karim",
    "Lena", "Marco", "Nina", "Omar", "Priya", "Ravi", "Sara", "Tara", "Victor", "Wei", "Maria",
    "Peter", "John", "Lucy", "Max", "Ella",
)  # fmt: skip

CITIES = (
    "Paris", "Rome", "Berlin", "Vienna", "Oslo", "Madrid", "Lisbon", "Athens", "Dublin", "Prague",
    "Warsaw", "Cairo", "Tokyo", "Delhi", "London", "Bern", "Helsinki", "Stockholm", "Copenhagen",
    "Amsterdam", "Brussels", "Budapest", "Lima", "Quito", "Boston", "Chicago", "Seattle", "Denver",
    "Sydney", "Toronto", "Munich", "Hamburg", "Milan", "Naples", "Porto", "Geneva", "Zurich",
)  # fmt: skip

THINGS = (
    "apples", "books", "pens", "cups", "stones", "coins", "cards", "eggs", "stamps", "balls",
    "keys", "flowers", "tickets", "cookies", "shells", "marbles", "oranges", "pencils", "toys",
    "candles", "lemons", "plates", "socks", "buttons", "tokens",
)  # fmt: skip

COLOURS = (
    "red", "blue", "green", "yellow", "black", "white", "orange", "purple", "brown", "grey",
    "pink", "silver", "golden",
)  # fmt: skip

ANIMALS = (
    "fox", "cat", "dog", "bear", "mouse", "badger", "heron", "rabbit", "turtle", "horse",
    "duck", "frog", "crow", "goat", "hedgehog", "beaver", "swan", "deer", "snail",
)  # fmt: skip

PLACES = (
    "river", "forest", "mill", "harbour", "garden", "lighthouse", "mountain", "village", "castle",
    "bridge", "library", "market", "meadow", "island", "valley", "lake", "station", "desert",
)  # fmt: skip

OBJECTS = (
    "lamp", "map", "boat", "key", "bell", "clock", "letter", "coat", "mirror", "drum", "ladder",
    "basket", "compass", "kite", "wheel", "book", "box", "door", "bicycle", "umbrella", "chair",
    "table", "camera", "radio", "bottle", "ring", "rope", "hammer", "violin", "painting",
)  # fmt: skip

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip

MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

ONSETS = ("b", "br", "d", "f", "g", "gr", "h", "k", "kl", "l", "m", "n", "p", "pr", "r", "s", "st",
          "t", "tr", "v", "w", "z", "sh", "ch", "j")  # fmt: skip
VOWELS = ("a", "e", "i", "o", "u", "ai", "ea", "oo", "y")
CODAS = ("", "", "l", "n", "r", "s", "t", "x", "nd", "rk", "m", "ck", "th")


def coined(rng: Random) -> str:
    """A name that does not exist: it teaches to copy what was never seen before."""
    parts = [rng.choice(ONSETS) + rng.choice(VOWELS) for _ in range(rng.randint(1, 3))]
    return ("".join(parts) + rng.choice(CODAS)).capitalize()


def person(rng: Random) -> str:
    return rng.choice(NAMES) if rng.random() < 0.75 else coined(rng)
