"""A day on the card in seconds: the real scheduler and the real ledger on a virtual clock.

`setup` says what there is, `trace` and `synth` what is asked, `world` performs it, `record` and
`figures` say what came of it, `report` and `picture` show it. `fifo` is the rival to compare with.
No process is started, nothing is measured but the replay's own speed.
"""
