"""Peers: other products that carry documents durably, each driven the way its manual says."""
