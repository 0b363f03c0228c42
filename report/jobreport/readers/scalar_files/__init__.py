"""Plain files of logged numbers: CSV, and the state of Hugging Face's Trainer."""
