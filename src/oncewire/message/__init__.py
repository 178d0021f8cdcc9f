"""What is said: frozen values in the drafts' own words, checked where they are made."""
