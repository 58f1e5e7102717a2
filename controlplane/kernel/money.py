"""Money as integers: nano-USD (1e-9 USD) in the ledger, never a float.

A price in micro-USD per million tokens is the same number as pico-USD per token.
"""

from decimal import ROUND_HALF_EVEN, Decimal

NANO_PER_USD = 1_000_000_000
PICO_PER_NANO = 1_000
MICRO_PER_USD = 1_000_000


def nano_from_pico(pico: int) -> int:
    """Round half-even from pico- to nano-USD; the one rounding of a ledger line."""
    whole, rest = divmod(pico, PICO_PER_NANO)
    half = PICO_PER_NANO // 2
    return whole + (rest > half or (rest == half and whole % 2 == 1))


def usd_text(nano: int) -> str:
    """Exact decimal text with nine places, as ledgers and CSV files print it."""
    sign = "-" if nano < 0 else ""
    whole, rest = divmod(abs(nano), NANO_PER_USD)
    return f"{sign}{whole}.{rest:09d}"


def usd_short(nano: int) -> str:
    """Text for tiles: two decimals from one dollar on, three significant digits below it."""
    sign = "-" if nano < 0 else ""
    exact = Decimal(abs(nano)) / NANO_PER_USD
    if exact >= 1 or nano == 0:
        return f"{sign}${exact:,.2f}"
    step = Decimal(1).scaleb(exact.adjusted() - 2)
    return f"{sign}${exact.quantize(step, rounding=ROUND_HALF_EVEN):f}"


def micro_from_usd(text: str) -> int:
    """Parse a decimal dollar amount; raises ValueError when it has more than six decimals."""
    try:
        micro = Decimal(text) * MICRO_PER_USD
        whole = int(micro)
    except (ArithmeticError, ValueError) as error:
        raise ValueError(f"{text} is not an amount") from error
    if micro != whole:
        raise ValueError(f"{text} has more than six decimals")
    return whole


def usd_from_micro(micro: int) -> str:
    """A price in dollars as forms take it: two decimals, or as many as it has."""
    whole, rest = divmod(micro, MICRO_PER_USD)
    digits = f"{rest:06d}".rstrip("0").ljust(2, "0")
    return f"{whole}.{digits}"


def nano_from_usd(text: str) -> int:
    """Parse a decimal dollar amount; raises ValueError when it has more than nine decimals."""
    nano = Decimal(text) * NANO_PER_USD
    if nano != nano.to_integral_value():
        raise ValueError(f"{text} has more than nine decimals")
    return int(nano)
