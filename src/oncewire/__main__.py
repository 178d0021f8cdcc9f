"""`python -m oncewire`: the same door as the `oncewire` command."""

from oncewire.entry.cli.main import main

if __name__ == "__main__":
    main()
