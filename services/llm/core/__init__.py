"""The decisions of the decode loop, pure: what a step works on (`plan`) and how much of a prompt it
brings along (`pace`), which prefixes are known (`radix`), how many cells are used (`cells`), who is
kept and who is parked (`prefixes`), and what is guessed ahead (`drafting`). The clock, the native
library and the requests stay out.
"""
