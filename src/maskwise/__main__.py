"""`python -m maskwise`: the command line."""

from maskwise.start import main

main()
