"""The release that this tree is; everything that says one reads it here."""

VERSION = "0.9.0"
