"""`python -m intarsia_command`, and what `python -m intarsia` runs."""

from intarsia_command.main import main

main()
