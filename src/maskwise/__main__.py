"""`python -m maskwise`: the command line."""

from maskwise.start import main

if __name__ == "__main__":
    main()
