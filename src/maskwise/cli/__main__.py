"""`python -m maskwise.cli`, for launchers such as torchrun."""

from maskwise.start import main

if __name__ == "__main__":
    main()
