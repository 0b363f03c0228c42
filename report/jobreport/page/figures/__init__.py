"""Drawings: typed details in, a Bokeh figure or the numbers of a static drawing out. No file, no rule."""
