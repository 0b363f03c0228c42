"""Parts of sections: what several share, and what would make one too long to read."""
