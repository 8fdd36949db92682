"""The program `kappa` in a checkout of the repository. Its commands are in kappa/commands."""

from kappa.commands.main import main

if __name__ == "__main__":
    main()
