"""From the directory a training job left behind to one self-contained HTML page."""

__version__ = "0.1.0"
