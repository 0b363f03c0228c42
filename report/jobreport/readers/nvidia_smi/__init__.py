"""Logs of nvidia-smi."""
