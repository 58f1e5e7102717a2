"""Documents: invoices, statements and credit notes, with their lines and files."""
