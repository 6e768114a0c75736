"""The HTTP surface: ``chat`` (the provider dialects), ``generations`` (what became of one), ``operations``.

``common`` holds what they share: who is calling, how an error looks, the hooks that tie a connection to its generation.
"""
