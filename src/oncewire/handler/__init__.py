"""Who does it: a synchronous engine over the pure protocol, and its asyncio shell."""
