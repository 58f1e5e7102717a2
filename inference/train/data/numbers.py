"""Small arithmetic and counting: sums, word problems, comparisons, sequences."""

from random import Random

from inference.train.data.dialogue import Exchange, listed
from inference.train.data.words import NAMES, THINGS

WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen", "twenty",
)  # fmt: skip

UNITS = (
    ("hours", "minutes", 60), ("minutes", "seconds", 60), ("days", "hours", 24),
    ("weeks", "days", 7), ("years", "months", 12), ("dollars", "cents", 100),
    ("metres", "centimetres", 100), ("kilometres", "metres", 1000), ("dozen", "pieces", 12),
)  # fmt: skip

SIGNS = {
    "+": ("+", "plus", "and"),
    "-": ("-", "minus", "less"),
    "*": ("*", "times", "x", "multiplied by"),
    "/": ("/", "divided by", "over"),
}
ASKS = (
    "What is {}?", "How much is {}?", "Calculate {}.", "{} = ?", "{}", "What's {}?", "Compute {}.",
    "Can you work out {}?", "Tell me {}.", "{}?", "Please solve {}.", "What does {} make?",
    "Give me the result of {}.", "what is {} equal to?",
)  # fmt: skip


def operands(rng: Random, sign: str) -> tuple[int, int, int]:
    """Two small numbers for the sign, and the result."""
    if sign == "*":
        a, b = rng.randint(0, 12), rng.randint(0, 12)
        return a, b, a * b
    if sign == "/":
        b, result = rng.randint(1, 12), rng.randint(0, 12)
        return b * result, b, result
    top = rng.choices((20, 99, 500), weights=(35, 55, 10))[0]
    a, b = rng.randint(0, top), rng.randint(0, top)
    if sign == "-":
        if rng.random() < 0.9:
            a, b = max(a, b), min(a, b)
        return a, b, a - b
    return a, b, a + b


def arithmetic(rng: Random) -> Exchange:
    """One sum, written with a sign or with words."""
    sign = rng.choices("+-*/", weights=(4, 3, 3, 1))[0]
    a, b, result = operands(rng, sign)
    spoken = rng.choice(SIGNS[sign])
    tight = spoken in "+-*/x" and rng.random() < 0.3
    term = f"{a}{spoken}{b}" if tight else f"{a} {spoken} {b}"
    if rng.random() < 0.06 and max(a, b) <= 20:
        term = f"{WORDS[a]} {SIGNS[sign][1]} {WORDS[b]}"
    answer = f"{a} {sign} {b} = {result}."
    return Exchange(rng.choice(ASKS).format(term), answer, (f"= {result}.",))


def chain(rng: Random) -> Exchange:
    """Three numbers, added or subtracted step by step in the answer."""
    a, b, c = (rng.randint(1, 20) for _ in range(3))
    first = a + b
    if rng.random() < 0.5:
        term, result, last = f"{a} + {b} + {c}", first + c, f"{first} + {c}"
    else:
        c = rng.randint(1, first)
        term, result, last = f"{a} + {b} - {c}", first - c, f"{first} - {c}"
    answer = f"{a} + {b} = {first}, and {last} = {result}. The result is {result}."
    return Exchange(rng.choice(ASKS).format(term), answer, (f"is {result}.",))


def word_problem(rng: Random) -> Exchange:
    name, other = rng.sample(NAMES, 2)
    thing = rng.choice(THINGS)
    a, b = rng.randint(2, 30), rng.randint(2, 20)
    kind = rng.randrange(4)
    if kind == 0:
        text = f"{name} has {a} {thing} and gets {b} more. How many {thing} does {name} have now?"
        answer = f"{a} + {b} = {a + b}. {name} has {a + b} {thing}."
        return Exchange(text, answer, (f"has {a + b} {thing}",))
    if kind == 1:
        a = a + b
        text = f"{name} has {a} {thing} and gives {b} to {other}. How many {thing} are left?"
        answer = f"{a} - {b} = {a - b}. {name} has {a - b} {thing} left."
        return Exchange(text, answer, (f"has {a - b} {thing}",))
    if kind == 2:
        a, b = rng.randint(2, 12), rng.randint(2, 12)
        text = f"There are {a} boxes with {b} {thing} in each. How many {thing} are there in all?"
        answer = f"{a} * {b} = {a * b}. There are {a * b} {thing} in all."
        return Exchange(text, answer, (f"are {a * b} {thing}",))
    price, count = rng.randint(2, 12), rng.randint(2, 9)
    text = f"{name} buys {count} {thing}. Each one costs {price} dollars. How much does {name} pay?"
    answer = f"{count} * {price} = {count * price}. {name} pays {count * price} dollars."
    return Exchange(text, answer, (f"pays {count * price} dollars",))


def compare(rng: Random) -> Exchange:
    """Which number is larger, smaller, even, odd; what comes next."""
    a, b = rng.sample(range(100), 2)
    kind = rng.randrange(5)
    if kind == 0:
        text = rng.choice(("Which is larger, {} or {}?", "What is bigger: {} or {}?"))
        high, low = max(a, b), min(a, b)
        answer = f"{high} is larger than {low}."
        return Exchange(text.format(a, b), answer, (answer,))
    if kind == 1:
        text = rng.choice(("Which is smaller, {} or {}?", "Which number is less: {} or {}?"))
        high, low = max(a, b), min(a, b)
        answer = f"{low} is smaller than {high}."
        return Exchange(text.format(a, b), answer, (answer,))
    if kind == 2:
        word = "even" if a % 2 == 0 else "odd"
        text = rng.choice(("Is {} even or odd?", "Is {} an even number?", "Is the number {} odd?"))
        return Exchange(text.format(a), f"{a} is an {word} number.", (f"an {word} number",))
    if kind == 3:
        text = rng.choice(("What number comes after {}?", "Which number follows {}?"))
        return Exchange(text.format(a), f"After {a} comes {a + 1}.", (f"comes {a + 1}.",))
    text = rng.choice(("What number comes before {}?", "Which number is just before {}?"))
    return Exchange(text.format(a + 1), f"Before {a + 1} comes {a}.", (f"comes {a}.",))


def counting(rng: Random) -> Exchange:
    """Count up, down, in steps or in words."""
    kind = rng.randrange(4)
    if kind == 0:
        top = rng.randint(3, 30)
        text = rng.choice(
            (
                "Count to {}.",
                "Count from 1 to {}.",
                "Please count up to {}.",
                "Can you count to {}?",
            )
        )
        answer = ", ".join(str(n) for n in range(1, top + 1)) + "."
        return Exchange(text.format(top), answer, (answer,))
    if kind == 1:
        top = rng.randint(3, 20)
        text = rng.choice(
            ("Count down from {}.", "Count backwards from {}.", "Count from {} to 1.")
        )
        answer = ", ".join(str(n) for n in range(top, 0, -1)) + "."
        return Exchange(text.format(top), answer, (answer,))
    if kind == 2:
        step = rng.choice((2, 3, 5, 10))
        text = rng.choice(("Count in steps of {}.", "Count by {}s.", "Count to {1} in {0}s."))
        answer = ", ".join(str(n) for n in range(step, step * 10 + 1, step)) + "."
        return Exchange(text.format(step, step * 10), answer, (answer,))
    top = rng.randint(3, 12)
    text = rng.choice(("Count to {} in words.", "Spell out the numbers from one to {}."))
    answer = listed(WORDS[1 : top + 1]) + "."
    return Exchange(text.format(WORDS[top]), answer, (answer,))


def order(rng: Random) -> Exchange:
    """Sort a few numbers, find the largest, or add them up."""
    numbers = rng.sample(range(1, 60), rng.randint(3, 5))
    shown = ", ".join(map(str, numbers))
    kind = rng.randrange(3)
    if kind == 0:
        text = rng.choice(
            ("Sort these numbers: {}.", "Put {} in order.", "Order {} from low to high.")
        )
        answer = ", ".join(map(str, sorted(numbers))) + "."
        return Exchange(text.format(shown), answer, (answer,))
    if kind == 1:
        text = rng.choice(("What is the largest of {}?", "Which is the biggest number: {}?"))
        answer = f"The largest number is {max(numbers)}."
        return Exchange(text.format(shown), answer, (answer,))
    text = rng.choice(("What is the smallest of {}?", "Which is the smallest number: {}?"))
    answer = f"The smallest number is {min(numbers)}."
    return Exchange(text.format(shown), answer, (answer,))


def units(rng: Random) -> Exchange:
    large, small, factor = rng.choice(UNITS)
    count = rng.randint(2, 9)
    text = rng.choice(
        ("How many {small} are in {n} {large}?", "How many {small} do {n} {large} have?",
         "Convert {n} {large} to {small}.", "What is {n} {large} in {small}?")
    ).format(small=small, large=large, n=count)  # fmt: skip
    total = count * factor
    answer = f"{count} * {factor} = {total}. So {count} {large} are {total} {small}."
    return Exchange(text, answer, (f"are {total} {small}",))


def yes_or_no(rng: Random) -> Exchange:
    """A comparison that is answered by yes or no, with the reason."""
    a, b = rng.sample(range(100), 2)
    asked_larger = rng.random() < 0.5
    word = "larger" if asked_larger else "smaller"
    text = rng.choice(("Is {a} {word} than {b}?", "Yes or no: is {a} {word} than {b}?"))
    truth = "larger" if a > b else "smaller"
    start = "Yes" if truth == word else "No"
    answer = f"{start}, {a} is {truth} than {b}."
    return Exchange(text.format(a=a, b=b, word=word), answer, (answer,))
