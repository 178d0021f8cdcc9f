"""How people and programs reach it: settings, party folders, keys, logs, the command line."""
