"""Object storage. ``urls`` and ``stores`` are also modules of ``jobreport.storage``, by links in the repository."""
