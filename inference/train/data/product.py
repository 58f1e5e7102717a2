"""What Sluice is and how its parts work: topics with answers, each asked in many phrasings."""

from dataclasses import dataclass
from random import Random

from inference.train.data.dialogue import Exchange, upper_first
from inference.train.data.product_topics import HOW_TO, STAGES, TOPICS

WHAT = (
    "What is {}?", "What's {}?", "Explain {}.", "Tell me about {}.", "What does {} mean?",
    "Can you explain {}?", "Define {}.", "{}?", "What is {} in Sluice?", "What do you mean by {}?",
    "Describe {}.", "What does {} mean in Sluice?", "I do not understand {}. Can you help?",
    "Can you tell me what {} is?", "Please explain {}.", "What should I know about {}?",
    "Explain {} in one sentence.", "Explain {} in simple words.", "What exactly is {}?",
    "Give me a short definition of {}.", "How would you describe {}?", "Do you know what {} is?",
    "Help me understand {}.", "What can you tell me about {}?", "Say something about {}.",
    "Could you explain what {} is?", "Why does {} matter?", "How does {} work?",
)  # fmt: skip

DEEP = (
    "Explain {} in detail.", "Tell me everything about {}.", "Tell me more about {}.",
    "Give me a long explanation of {}.", "How does {} work in detail?", "Explain {} step by step.",
    "I want to know more about {}.", "Write a paragraph about {}.",
)  # fmt: skip

STAGE_NUMBERS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh")


@dataclass(frozen=True)
class Topic:
    """One thing to know: the names people use for it, a short answer and what to add to it."""

    names: tuple[str, ...]
    short: str
    more: str
    must: str


ALL_TOPICS = tuple(Topic(*row) for row in TOPICS)


def topic_number(name: str) -> int:
    return next(n for n, one in enumerate(ALL_TOPICS) if name in one.names)


NEIGHBOURS = tuple(
    (topic_number(one), topic_number(other))
    for one, other in (
        ("prefill", "decode"), ("a hold", "settle"), ("settle", "release"), ("a node",
                                                                             "the gateway"),
        ("the gateway", "the control plane"), ("TTFT", "ITL"), ("the prefix cache", "the KV cache"),
        ("a quota", "a hold"), ("a token", "the tokenizer"), ("temperature", "top_p"),
        ("decode", "prefill"), ("the control plane", "the gateway"), ("a fallback",
                                                                      "a circuit breaker"),
        ("continuous batching", "chunked prefill"), ("the ledger", "a hold"),
    )
)  # fmt: skip


def topic(rng: Random) -> Exchange:
    """A question on one topic; a question that wants detail gets the long answer."""
    chosen = rng.choice(ALL_TOPICS)
    name = rng.choice(chosen.names)
    if rng.random() < 0.25:
        text = upper_first(rng.choice(DEEP).format(name))
        return Exchange(text, f"{chosen.short} {chosen.more}", (chosen.must,))
    return Exchange(upper_first(rng.choice(WHAT).format(name)), chosen.short, (chosen.must,))


def how_to(rng: Random) -> Exchange:
    """A practical question: how to start, stop, call, count, protect."""
    questions, answer, must = rng.choice(HOW_TO)
    return Exchange(rng.choice(questions), answer, (must,))


def stage(rng: Random) -> Exchange:
    """One of the seven stages, by number, by name or by its neighbours."""
    n = rng.randrange(len(STAGES))
    name, does = STAGES[n]
    number, digit = STAGE_NUMBERS[n], n + 1
    kind = rng.randrange(4)
    if kind == 0:
        text = rng.choice(("What is the {} stage?", "Which stage is the {} one?",
                           "What happens in the {} stage?",
                           "Name the {} stage of a request."))  # fmt: skip
        return Exchange(
            text.format(number), f"The {number} stage is {name}: {does}", (f"is {name}",)
        )
    if kind == 1:
        text = rng.choice(
            ("What is stage {}?", "What happens in stage {}?", "What does stage {} do?")
        )
        return Exchange(text.format(digit), f"Stage {digit} is {name}: {does}", (f"is {name}",))
    if kind == 2:
        text = rng.choice(("What does the {} stage do?", "What happens in the {} stage?",
                           "What is the {} stage for?"))  # fmt: skip
        return Exchange(text.format(name), f"The {name} stage is number {digit}: {does}", (does,))
    other = (n + 1) % len(STAGES)
    if other == 0:
        return Exchange(
            rng.choice(("What comes after billing?", "What is after the last stage?")),
            "Billing is the last stage. After it the answer ends with [DONE].",
            ("last stage",),
        )
    text = rng.choice(("What comes after the {} stage?", "Which stage follows {}?",
                       "What is the next stage after {}?"))  # fmt: skip
    following = STAGES[other][0]
    return Exchange(text.format(name), f"After {name} comes {following}.", (f"comes {following}.",))


def all_stages(rng: Random) -> Exchange:
    """The seven stages in order, short or with what each one does."""
    if rng.random() < 0.5:
        text = rng.choice(
            ("What are the seven stages?", "List the seven stages.", "Name the seven stages.",
             "Which stages does a request take?", "What stages does Sluice have?",
             "Name the stages of a request.", "How many stages are there?", "seven stages?",
             "What are the stages in order?", "Which seven stages are there in Sluice?")
        )  # fmt: skip
        names = ", ".join(name for name, _ in STAGES[:-1])
        answer = f"A request takes seven stages: {names} and {STAGES[-1][0]}."
        return Exchange(text, answer, (answer,))
    text = rng.choice(
        ("Walk me through the seven stages.", "Explain the seven stages.",
         "How does a request flow through Sluice?", "What happens to a request?",
         "Explain step by step what happens to a request.", "Describe the path of a request.",
         "Tell me about the seven stages.", "Explain all stages of a request in detail.",
         "How does Sluice handle a request?", "What happens when I send a prompt?")
    )  # fmt: skip
    steps = " ".join(
        f"{n}. {upper_first(name)}: {does}" for n, (name, does) in enumerate(STAGES, 1)
    )
    return Exchange(
        text,
        f"A request takes seven stages. {steps}",
        tuple(upper_first(name) for name, _ in STAGES),
    )


def facts_in_order(rng: Random) -> Exchange:
    """A numbered list that follows the table from its first row on."""
    return fact_list(rng, in_order=True)


def some_facts(rng: Random) -> Exchange:
    """A few facts of the table in a numbered list: one of the longer answers."""
    return fact_list(rng, in_order=False)


def fact_list(rng: Random, *, in_order: bool) -> Exchange:
    count = rng.randint(3, 6)
    word = ("three", "four", "five", "six")[count - 3]
    text = rng.choice(
        ("Tell me {} facts about Sluice.", "Give me {} facts on Sluice.",
         "List {} things about Sluice.",
         "Write {} sentences about Sluice.", "Explain {} words that Sluice uses.")
    )  # fmt: skip
    number = word if rng.random() < 0.6 else str(count)
    chosen = ALL_TOPICS[:count] if in_order else rng.sample(ALL_TOPICS, count)
    lines = "\n".join(f"{n}. {one.short}" for n, one in enumerate(chosen, 1))
    answer = f"Here are {word} facts:\n{lines}"
    return Exchange(text.format(number), answer, (f"{count}. ",))


def difference(rng: Random) -> Exchange:
    one, other = rng.sample(ALL_TOPICS, 2)
    if rng.random() < 0.5:
        one, other = (ALL_TOPICS[n] for n in rng.choice(NEIGHBOURS))
    first, second = rng.choice(one.names), rng.choice(other.names)
    text = rng.choice(
        ("What is the difference between {} and {}?", "Compare {} and {}.",
         "How do {} and {} differ?", "What are {} and {}?", "Explain {} and {}.")
    )  # fmt: skip
    return Exchange(
        text.format(first, second), f"{one.short} {other.short}", (one.must, other.must)
    )


def tell_me_more(rng: Random) -> list[Exchange]:
    """A short answer, and what to add to it when the user asks for more."""
    chosen = rng.choice(ALL_TOPICS)
    ask = rng.choice(("Tell me more.", "More, please.", "Go on.", "Can you say more about that?",
                      "Explain that in more detail.", "And what else?", "Continue."))  # fmt: skip
    text = upper_first(rng.choice(WHAT).format(rng.choice(chosen.names)))
    return [
        Exchange(text, chosen.short, (chosen.must,)),
        Exchange(ask, chosen.more, (chosen.more,)),
    ]
