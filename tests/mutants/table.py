"""Faults put into money and admission by hand, one line each, and the tests that must find them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRICE, MONEY = "controlplane/kernel/price.py", "controlplane/kernel/money.py"
HOLD_SQL = "controlplane/billing/sql/functions/hold.sql"
SETTLE_SQL = "controlplane/billing/sql/functions/settle.sql"
ADMIT, LIMITS = (
    "controlplane/gateway/s1_admission/hold.py",
    "controlplane/gateway/s1_admission/limits.py",
)
BILL, SETTLE = "controlplane/gateway/s7_bill/price.py", "controlplane/gateway/s7_bill/settle.py"
OF_MONEY = ("tests/kernel/test_money.py", "tests/kernel/test_price.py")
OF_LEDGER = (
    "tests/contracts/test_ledger.py",
    "tests/bridge/money/test_ledger.py",
    "tests/billing/ledger",
)
OF_ADMISSION = (
    "tests/gateway/s1_admission",
    "tests/gateway/test_plan.py",
    "tests/gateway/openai",
)
OF_BILLS = (
    "tests/gateway/s7_bill",
    "tests/gateway/test_pipeline.py",
    "tests/gateway/openai/test_answers.py",
)


@dataclass(frozen=True)
class Mutant:
    """`before` stands in the file once, and becomes `after`."""

    name: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return self.name


MUTANTS = (
    Mutant(
        "cached tokens cost twice", PRICE, "uncached=prompt - cached,", "uncached=prompt,", OF_MONEY
    ),
    Mutant(
        "output at the price of input",
        PRICE,
        "+ counts.output * price.output_pico",
        "+ counts.output * price.input_pico",
        OF_MONEY,
    ),
    Mutant(
        "low priority pays for high",
        PRICE,
        "low = priority < PRIORITY_NORMAL",
        "low = priority > PRIORITY_NORMAL",
        OF_MONEY,
    ),
    Mutant(
        "a hold at the cheapest input",
        PRICE,
        "dearest_input = max(",
        "dearest_input = min(",
        OF_MONEY,
    ),
    Mutant("halves are rounded to odd", MONEY, "whole % 2 == 1", "whole % 2 == 0", OF_MONEY),
    Mutant("halves are rounded up", MONEY, "rest > half or", "rest >= half or", OF_MONEY),
    Mutant(
        "what is held is forgotten",
        HOLD_SQL,
        "SET short = b.lim - b.posted - b.held < d.need",
        "SET short = b.lim - b.posted < d.need",
        OF_LEDGER,
    ),
    Mutant(
        "a batch leaves the last room empty",
        HOLD_SQL,
        "rooms[place] < p_amount[i] THEN",
        "rooms[place] <= p_amount[i] THEN",
        OF_LEDGER,
    ),
    Mutant("the refused keep their hold", HOLD_SQL, "ELSE -h.amount END", "ELSE 0 END", OF_LEDGER),
    Mutant(
        "a settled hold stays held",
        SETTLE_SQL,
        "SET held = b.held - c.held, posted",
        "SET held = b.held, posted",
        OF_LEDGER,
    ),
    Mutant(
        "an overage is charged twice",
        SETTLE_SQL,
        "ELSE least(amount, held) END",
        "ELSE amount END",
        OF_LEDGER,
    ),
    Mutant(
        "a late charge is not counted",
        SETTLE_SQL,
        "SET posted = b.posted + c.nano,",
        "SET posted = b.posted,",
        OF_LEDGER,
    ),
    Mutant(
        "one choice is held for",
        ADMIT,
        "step.output_tokens * ask.choices",
        "step.output_tokens",
        OF_ADMISSION,
    ),
    Mutant(
        "the cheapest model is held for",
        ADMIT,
        "return max([_nano(",
        "return min([_nano(",
        OF_ADMISSION,
    ),
    Mutant(
        "limits let everybody in",
        LIMITS,
        "if not allowance.allowed:",
        "if allowance is None:",
        OF_ADMISSION,
    ),
    Mutant(
        "one request too many", LIMITS, "room.remaining < 1", "room.remaining < 0", OF_ADMISSION
    ),
    Mutant("cached tokens are billed in full", BILL, "usage.cached_tokens", "0", OF_BILLS),
    Mutant(
        "the hold is charged",
        SETTLE,
        "amount_nano=charge.amount_nano",
        "amount_nano=hold.amount_nano",
        OF_BILLS,
    ),
)
