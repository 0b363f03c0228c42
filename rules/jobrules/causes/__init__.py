"""Causes of lost GPU time: what each claims, its finding, and its advice. The rules of a cause say when it counts."""
