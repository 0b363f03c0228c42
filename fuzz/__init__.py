"""Damaged jobs by the thousand, and what must hold for each: for ``make fuzz``, and in short for the tests."""
