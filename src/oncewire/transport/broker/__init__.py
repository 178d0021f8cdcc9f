"""Parcels in a durable broker, NATS JetStream; `transport` is the door.

The mapping is in `docs/howto/transports.md`.
"""
