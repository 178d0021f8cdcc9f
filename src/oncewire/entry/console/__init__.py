"""The console: pages of a running party for people, over what the admin port offers programs."""
