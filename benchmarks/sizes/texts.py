"""Requests of known size class, made from phrases with a seed: nobody's prompts.

A kind of request has phrasings, of which the second half is never trained on, and a share of size
classes: what lies between two of them is labelled either way, as people would. Kinds that are
`UNSEEN` are left out of training as a whole.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from controlplane.kernel.rules import SIZE_CLASSES, SizeClass
from controlplane.kernel.sizing.features import AskShape

# Of the requests so many have a size class that somebody chose carelessly.
NOISE = 0.03
SMALL, MEDIUM, LARGE = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
Range = tuple[int, int]


@dataclass(frozen=True)
class Kind:
    """A kind of request: `shares` of small, medium and large, and ranges of what comes with it."""

    name: str
    shares: tuple[float, float, float]
    phrases: tuple[str, ...]
    context: Range = (0, 60)
    code: float = 0.0
    tools: Range = (0, 0)
    results: Range = (0, 0)
    turns: Range = (1, 3)
    schema: float = 0.0
    outputs: tuple[int | None, ...] = (None, None, None, 256, 1024)
    efforts: tuple[str, ...] = ("",)
    images: float = 0.0
    adds: Range = (0, 0)


KINDS: tuple[Kind, ...] = (
    Kind("greeting", SMALL, (
        "Hi there!", "Hello.", "Thanks, that is all.", "Good morning, are you there?", "Ping",
        "Hey, just saying hello.", "Great, thank you!", "Nice, bye.", "Are you a machine?", "Okay.",
    ), context=(0, 300), turns=(1, 12)),
    Kind("lookup", (0.94, 0.06, 0.0), (
        "What is the capital of {place}?", "Who founded {thing}?", "When did {thing} appear?",
        "Define {idea}.", "Is {place} larger than Lima?", "How tall is the tower of {place}?",
        "Which year was {place} founded?", "Where is {place}?", "What does {idea} mean?",
        "How old is {place}?", "Do they sell {thing} in {place}?", "Opening hours of {place}?",
    )),
    Kind("translation", SMALL, (
        "Translate into French: {thing} is late.", "Translate '{thing}' to German.",
        "Translate the text below into Danish.", "{thing} in Portuguese, please.",
        "Give the Spanish translation of this sentence: we visited {place}.",
        "How do you say {thing} in Italian?", "Translation into Dutch: {thing} and {idea}.",
        "Put this into Polish: we will be in {place} on Monday.",
    ), context=(0, 400), outputs=(None, 64, 128), efforts=("", "", "low")),
    Kind("labels", (0.96, 0.04, 0.0), (
        "Classify the sentiment of this review as positive or negative: I liked {thing}.",
        "Label this ticket with one category: billing, access or other. It says: {thing} is gone.",
        "Is this message spam? Answer yes or no: win {thing} in {place} now!",
        "Is the following text about {idea}? Reply with true or false.",
        "Pick the right tag for '{thing}': news, sport or culture.",
        "Which category fits best, A or B? Text: {thing} near {place}.",
        "Rate this comment from 1 to 5, number only: {thing} came late.",
        "Detect the language of this text.",
    ), context=(0, 900), schema=0.3, outputs=(1, 4, 16, 32, None),
       efforts=("", "", "none")),
    Kind("extraction", (0.88, 0.12, 0.0), (
        "Extract name and date from the text below.", "List the amounts in this invoice.",
        "Extract all products with their prices.", "Give me only the phone numbers in here.",
        "Pull all email addresses out of this text.", "Find the order number in the message.",
        "Return the city named in this paragraph.", "Who signed this letter? Name only.",
    ), context=(50, 2_500), schema=0.6, outputs=(None, 64, 200)),
    Kind("correction", (0.92, 0.08, 0.0), (
        "Fix the typo: {thing} are late.", "Correct the spelling of this sentence: {thing}.",
        "Correct my grammar: he go to {place}.", "Make this shorter: {thing} were seen by us.",
        "Rephrase politely: send {thing} now.", "Shorten this: we look at {thing} tomorrow.",
        "Make this sentence sound friendlier: no {thing} today.", "Put commas where they belong.",
    ), context=(0, 200)),
    Kind("conversion", SMALL, (
        "Convert 12 miles to kilometers.", "Write 1997 in roman numerals.", "What is 15 % of 80?",
        "4 + 9 * 2?", "Convert 30 degrees Celsius to Fahrenheit.",
        "Convert this date to ISO format: 3 May 2021.", "How many seconds are in 3 hours?",
        "What is 7 times 8?", "Uppercase this: {thing}.", "Sort these: {thing}, tea, salt.",
    ), outputs=(None, None, 16, 32), efforts=("", "", "minimal")),
    Kind("title", (0.94, 0.06, 0.0), (
        "Suggest a title for this conversation.", "Name this chat in five words.",
        "Title, at most four words.", "A short heading for the following text, please.",
        "Give a short title for the text below.", "Write a headline of six words for this.",
        "What would be a good subject line for this mail?", "Name this document.",
    ), context=(50, 1_500), turns=(1, 6), outputs=(None, 16, 20, 32)),
    Kind("summary", (0.1, 0.86, 0.04), (
        "Summarize the following document.", "Summarise this thread with the highlights.",
        "Give me a summary of this article in five bullets.", "What are the main points of this?",
        "Summarize what was decided and by whom.", "A one-page summary of the text, please.",
        "Condense this report to one paragraph.", "Write an overview of the text below.",
        "Boil this down to what a manager has to know.", "What happened in this meeting?",
    ), context=(300, 12_000)),
    Kind("email", (0.05, 0.92, 0.03), (
        "Write an email to a customer whose order of {thing} is late.",
        "Draft a letter to the landlord about {thing}.", "Write a post about {idea}.",
        "Write a friendly reminder about {thing} for {place}.",
        "Compose a reply that declines {thing} politely and suggests {idea}.",
        "Write an announcement about {thing} for our team in {place}.",
        "I need a cover letter for a job in {place}.", "Turn this into a polite complaint.",
    ), context=(0, 500), adds=(0, 2)),
    Kind("explanation", (0.12, 0.84, 0.04), (
        "Explain {idea} to a beginner.", "How does {idea} work?", "Why is {idea} useful?",
        "Describe the difference between {idea} and {idea}.", "Give an overview of {idea}.",
        "Explain with an example what {idea} has to do with {thing}.",
        "Help me understand {idea} with an example.", "Tell me about {idea} in some detail.",
        "What are good and bad sides of {idea}?", "Walk me through {idea} in a few steps.",
    )),
    Kind("function", (0.03, 0.85, 0.12), (
        "Write a Python function that parses {thing} records.",
        "Write a SQL query that counts {thing} by {place}.", "Write a parser for dates in Go.",
        "Write a script that downloads {thing} every night.",
        "Give me a regex that matches {thing}.", "Implement a small class for {thing}.",
        "Write a bash script that renames files of {thing}.", "A query for the last ten orders?",
        "I need code that sorts {thing} by date.", "Create a JSON schema for {thing}.",
    ), context=(0, 300), code=0.3, adds=(0, 2)),
    Kind("code-question", (0.04, 0.8, 0.16), (
        "What does this code do?", "Explain this function step by step.",
        "Which of these two functions is easier to read?", "Write tests for this function.",
        "Add a docstring to this function.", "Write a unit test for this.",
        "How do I call this from another module?", "Convert this code to TypeScript.",
        "What does line 4 mean?", "Add types to this code.",
    ), context=(100, 1_200), code=1.0),
    Kind("grounded", (0.15, 0.82, 0.03), (
        "Using the context above, what does it say about {idea}?",
        "Answer from the documents only: how is {thing} handled?",
        "With the passages given, describe how {idea} is used in {place}.",
        "According to these passages, who may use {thing}?",
        "What do the sources say about {place}?", "From the excerpts: when is {thing} due?",
        "Answer with citations: what has {idea} to do with {thing}?",
    ), context=(500, 6_000)),
    Kind("few-tools", (0.1, 0.82, 0.08), (
        "What is the weather in {place} tomorrow?", "Book a table for two in {place}.",
        "Find the order of {thing} and tell me when it comes.", "Cancel my order of {thing}.",
        "Look up {thing} and send me the result.", "Schedule a call about {idea} for Monday.",
        "Is {thing} in stock near {place}?", "Remind me of {thing} tomorrow at nine.",
    ), context=(100, 900), tools=(1, 4), results=(0, 2), turns=(1, 6)),
    Kind("conversation", (0.15, 0.77, 0.08), (
        "And what about {idea}?", "Can you give another example with {thing}?",
        "Is that also true for {place}?", "Tell me more.", "What else should I know?",
        "Make it a bit longer and mention {place}.", "That is not what I meant; focus on {idea}.",
        "Go on, please.", "Say more about the second one.", "How does that compare to {idea}?",
    ), context=(200, 3_000), turns=(4, 16)),
    Kind("picture", (0.15, 0.8, 0.05), (
        "What is in this picture?", "Describe the image for a blind reader.",
        "Read the text in this photo.", "Which {thing} can be seen here?", "What is the mood here?",
        "Compare both pictures.",
    ), images=1.0),
    Kind("proof", (0.0, 0.04, 0.96), (
        "Prove that the sum of two {idea} is never {idea} if n ≥ 3 and x ∈ R ^ n.",
        "Derive the bound for {idea} and give a rigorous proof of each step.",
        "Show that the algorithm for {idea} is correct: state an invariant and prove it.",
        "Prove that every bounded sequence has a convergent subsequence.",
        "Show that √2 + √3 is irrational, and that ∑ 1/n^2 ≤ 2.",
        "Prove or disprove: for all n ≥ 1, f(n) ≤ g(n)^2 → f ≤ g.",
        "Find the worst-case complexity of {idea} and justify it.",
        "Give a proof by induction that √n ≤ n for all n ≥ 1, and where it fails for x ∈ (0, 1).",
        "Derive the estimator for {idea} and prove that it is optimal.",
        "Is there a counterexample to this theorem about {idea}? Argue rigorously.",
    ), adds=(0, 1), efforts=("", "", "high")),
    Kind("debugging", (0.0, 0.08, 0.92), (
        "This fails under load with a deadlock. Find the root-cause and fix it.",
        "Why does this test fail only sometimes? Debug the race and explain the fix.",
        "There is a memory leak here. Diagnose it and give a corrected version.",
        "The cache returns stale values once in a while. Reason about the order of events.",
        "Find the bug: totals differ by one cent after the migration.",
        "Requests are slow since the last change; analyze the trace and find the bottleneck.",
        "The service crashes after an hour. Reason about what happens between these modules.",
        "Our results differ between two runs. Work out why, given the logs and the code below.",
        "Debug this: the second worker never wakes up.",
        "Why is this concurrency bug not caught by the tests?",
    ), context=(600, 12_000), code=0.95, turns=(1, 8), adds=(0, 3), efforts=("", "", "high")),
    Kind("architecture", (0.0, 0.06, 0.94), (
        "Design a distributed system for {thing}. Compare the trade-offs of two designs.",
        "Plan the migration of {thing} to {idea}:\n1. no downtime\n2. rollback\n3. cost\n",
        "Architecture review: how should {thing} be stored, replicated and deleted?",
        "Design the schema and the service for {thing}, and justify each decision.",
        "Develop a strategy for {idea} across two regions, with failure modes.",
        "We need a service for {thing} with these requirements:\n- {idea}\n- audit\n- quotas\n",
        "Evaluate three strategies for {idea} and recommend one.",
        "Propose how {thing} should be split into services, and what breaks first at ten times the"
        " load.",
        "Design an interface for {idea} that old clients can go on using.",
        "Which consistency model fits {thing}? Argue from the requirements.",
    ), context=(0, 1_500), adds=(1, 6), outputs=(None, None, 4_096, 8_192)),
    Kind("refactoring", (0.0, 0.1, 0.9), (
        "Refactor these modules so that {idea} is behind one interface.",
        "Implement the missing parts of this module and write tests.",
        "Rewrite this service in Rust, module by module.",
        "Integrate {idea} into this code base and migrate its callers.",
        "Review this change for correctness, concurrency and security.",
        "Port this code to async without breaking its callers; explain every trade-off.",
        "Rework the parser below so that it supports nested {thing}, and keep it linear.",
        "Split this class, and design tests that prove that nothing changed.",
    ), context=(800, 16_000), code=1.0, adds=(0, 4), outputs=(None, None, 4_096)),
    Kind("agent", (0.0, 0.1, 0.9), (
        "Continue.", "Make the failing tests pass.", "Implement the feature described above.",
        "Find out why the build is red.", "Do the same for the other modules.",
        "Fix the bug in the repository and run the tests.", "Apply the change and check it.",
        "Carry on with the next step of the plan.", "Now commit it and open a request.", "Yes.",
    ), context=(3_000, 40_000), code=0.7, tools=(6, 40), results=(3, 40), turns=(6, 60)),
    Kind("planning", (0.0, 0.12, 0.88), (
        "Plan a product launch in {place}: budget, risks, schedule. Prioritize and justify.",
        "We must choose between {idea} and {idea}. Analyze costs, risks and consequences.",
        "Assess whether we should move {thing} to {place}, and decide.",
        "Develop a business plan for {thing} with three scenarios.",
        "Write a detailed study plan for {idea}: what first? why? how is it tested? what if I fall"
        " behind?",
        "Assess whether {thing} is feasible in {place}, estimate the numbers, argue both sides.",
        "Design an experiment that tells whether {idea} helps, and its pitfalls.",
        "Which strategy should a shop for {thing} follow? Compare at least three.",
    ), adds=(1, 5), outputs=(None, None, 2_048, 4_096)),
    Kind("analysis", (0.0, 0.16, 0.84), (
        "Compare these contracts clause by clause and evaluate which is riskier, and why.",
        "Analyze the data below: which hypothesis explains it? What would disprove it?",
        "Evaluate the argument in this paper, and its weakest assumption.",
        "Read these reports, find contradictions between them, and reason about which is right.",
        "From these filings, infer how {thing} changed and estimate its consequences.",
        "Assess the risks in this agreement and justify your ranking.",
    ), context=(2_000, 30_000), adds=(0, 2), efforts=("", "high")),
    # Kinds that training never sees.
    Kind("words", SMALL, (
        "Give the plural of {thing}.", "Spell {place} backwards.", "What is the opposite of late?",
        "List three synonyms of {idea}.", "What does the abbreviation GDP stand for?",
    ), outputs=(None, 16)),
    Kind("advice", (0.15, 0.82, 0.03), (
        "Suggest a recipe with {thing} for four people.", "Write a product description of {thing}.",
        "Recommend three books about {idea} and say what each is about.",
        "Outline a talk about {idea} in ten minutes.", "What should I pack for {place} in May?",
    )),
    Kind("records", (0.25, 0.72, 0.03), (
        "Fill the schema from this conversation.", "Turn these notes into a structured record.",
        "Convert the minutes into action items with owners.",
    ), context=(300, 4_000), schema=1.0),
    Kind("puzzle", (0.0, 0.12, 0.88), (
        "Three people tell the truth or lie. Given what they say about {thing}, who lies, and why?",
        "Find the optimal schedule for 7 jobs on 3 machines: {thing} before {idea}, nothing at"
        " night, and at most two at once. Explain your reasoning.",
        "Estimate how many orders of {thing} there are in {place}. Show every assumption.",
    ), adds=(0, 3)),
    Kind("optimization", (0.0, 0.12, 0.88), (
        "This query is slow. Explain the plan and optimize it without changing its result.",
        "Rewrite this loop so that it uses the cache well; prove that it gives the same values.",
        "Find why the tail latency doubled and suggest what to measure next.",
    ), context=(400, 6_000), code=0.9, adds=(0, 3)),
)  # fmt: skip
UNSEEN = frozenset({"words", "advice", "records", "puzzle", "optimization"})
# What people put around any request, and what they add to one that is not simple.
_AROUND = (
    ("", ""), ("", ""), ("", ""), ("Please: ", ""), ("", " Thanks!"), ("Hi, ", ""),
    ("", " Keep it short."), ("I have a question. ", ""), ("", " It is for a colleague."),
    ("Hello again. ", " I need it today."),
)  # fmt: skip
_ADDS = (
    "It must handle failures of one region.", "Never lose data.", "Keep costs flat.",
    "State your assumptions.", "Only two people can work on it.", "Nothing may change for callers.",
    "It should be tested.", "Justify each step.", "Ensure that it is safe to repeat.",
    "Use no library except the standard one.", "At most 20 ms may be added.",
    "It has to support ten times the load.", "Compare at least two ways.", "Give every reason.",
    "Assume that clocks differ.", "It cannot be down, unless at night.",
)  # fmt: skip
_SLOTS = {
    "place": ("Norway", "Lima", "the old harbour", "Utrecht", "Kyoto", "our second office"),
    "thing": ("the parcel", "invoices", "a bicycle", "log lines", "the quarterly report", "tea"),
    "idea": (
        "recursion", "inflation", "photosynthesis", "event sourcing", "a hash table", "insurance",
        "eventual consistency", "prime numbers", "caching",
    ),
}  # fmt: skip


class SizedAsk(NamedTuple):
    """A made request, its kind, and the size class that it needs."""

    shape: AskShape
    kind: str
    size_class: SizeClass


@dataclass
class Maker:
    """Requests of the kinds in turn, all from one seed."""

    seed: int
    held_out: bool = False
    unseen: bool = False
    _random: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = random.Random(f"{self.seed} {self.held_out} {self.unseen}")

    def make(self, count: int) -> list[SizedAsk]:
        kinds = [kind for kind in KINDS if (kind.name in UNSEEN) == self.unseen]
        return [self._ask(kinds[place % len(kinds)]) for place in range(count)]

    def _ask(self, kind: Kind) -> SizedAsk:
        draw = self._random
        question = self._question(kind)
        context = draw.randint(*kind.context)
        results = min(draw.randint(*kind.results), draw.randint(*kind.turns))
        if context and draw.random() < 0.5 and not results:
            question = f"{question}\n\n{self._filler(context)}"
        code = draw.random() < kind.code
        if code and draw.random() < 0.5:
            question = f"{question}\n{self._code()}"
        shape = AskShape(
            prompt_tokens=30 + context + len(question) // 4,
            question=question,
            code_blocks=draw.randint(1, 5) if code else 0,
            turns=max(draw.randint(*kind.turns), results),
            tools=draw.randint(*kind.tools),
            tool_results=results,
            schema=draw.random() < kind.schema,
            output_tokens=draw.choice(kind.outputs),
            effort=draw.choice(kind.efforts),
            images=int(draw.random() < kind.images),
        )
        shares = (1 / 3, 1 / 3, 1 / 3) if draw.random() < NOISE else kind.shares
        return SizedAsk(shape, kind.name, draw.choices(SIZE_CLASSES, shares)[0])

    def _question(self, kind: Kind) -> str:
        half = (len(kind.phrases) + 1) // 2
        later = kind.phrases[half:] if self.held_out else kind.phrases[:half]
        draw = self._random
        text = draw.choice(kind.phrases if self.unseen else later)
        half = len(_ADDS) // 2
        adds = _ADDS[half:] if self.held_out or self.unseen else _ADDS[:half]
        text = " ".join([text, *draw.sample(adds, draw.randint(*kind.adds))])
        before, after = draw.choice(_AROUND)
        text = f"{before}{text}{after}"
        for slot, values in _SLOTS.items():
            while f"{{{slot}}}" in text:
                text = text.replace(f"{{{slot}}}", self._random.choice(values), 1)
        return text

    def _filler(self, tokens: int) -> str:
        words = ["a", "record", "of", "goods", "that", "came", "from", "north", "and", "is", "sold"]
        return " ".join(self._random.choices(words, k=min(tokens, 1_200))) + "."

    def _code(self) -> str:
        name = self._random.choice(("load", "merge", "scan", "apply"))
        line = f"    if x[{self._random.randint(0, 9)}] != y: z = {name}(x, y); return z\n"
        return f"```\ndef {name}(x, y):\n{line * self._random.randint(1, 12)}```"
