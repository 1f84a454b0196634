"""`python -m cli` is `cohabit`."""

from cli.main import main

main()
