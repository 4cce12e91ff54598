"""Names in the evidence of records."""

TIMES_INPUT = "_times_input"  # ends the names of gradient x input in the evidence of records
