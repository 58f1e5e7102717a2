"""Things that change by versions: a draft, perhaps a canary, one in force, and all that were."""
