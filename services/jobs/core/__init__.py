"""The life of jobs, pure: events and the time come in, effects go out as data.

A job is on disk before anybody hears of it, and every change of it is on disk before anybody hears
of that; `Book` decides, the shell writes, tells and begins, in the order of the effects. What the
calls of a step are, and what a file holds, is not known here.
"""
