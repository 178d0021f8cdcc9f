"""A message that is not for us: `passing` takes it or lets it through, `next_hop` sends it on."""
