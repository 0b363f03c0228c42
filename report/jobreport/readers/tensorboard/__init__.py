"""Scalars that TensorBoard shows."""
