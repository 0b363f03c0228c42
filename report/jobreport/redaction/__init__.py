"""Names and addresses in a report, and placeholders for them."""
