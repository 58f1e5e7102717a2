"""A session's device in a few words, from what its browser calls itself.

Only words of ours are kept: what a client calls itself may be anything, a secret sent amiss too.
"""

# The first that fits: later browsers carry the names of earlier ones.
BROWSERS = (
    ("Edg/", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
)
SYSTEMS = (
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)
UNKNOWN = "Unknown device"


def device_words(agent: str) -> str:
    """Browser and system where both are known, else the one that is."""
    found = [
        next((word for mark, word in marks if mark in agent), "") for marks in (BROWSERS, SYSTEMS)
    ]
    return " on ".join(word for word in found if word) or UNKNOWN
