"""What is seen of the house from outside: its metrics, its failures, its access log.

`metrics` counts what the edge itself sees, `exposition` makes one text of everybody's, `gathering`
asks for it; `failures` keeps the last answers of 5xx, `access_log` the lines of requests. Nothing
here holds a header's value, a body or a query.
"""
