"""Files of money: usage, requests, FOCUS, journal; the same bytes for the same closed period."""
