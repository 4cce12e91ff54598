"""`python -m maskwise.cli`, for launchers such as torchrun."""

from maskwise.cli import main

if __name__ == "__main__":
    main()
