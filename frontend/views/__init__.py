"""One file per page: permission, selector, render; no queries and no arithmetic here."""
