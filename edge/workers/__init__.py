"""The edge as several processes: one parent, and workers that serve.

    parent ─ crew ─ child    starts workers, starts them again, ends them
    choosing ─ handover      which worker has a connection next (pure); how it comes to it
    link ─ frames            calls between a worker and its parent, both ways
    calls                    what they tell each other about the worker itself
    parent                   listens, keeps the rooms, and ends when it is told to
    worker                   a worker: an edge whose connections come from its parent

The parent holds what must be right over all workers, in the rooms of those whose affair it is
(`edge.responses.room`, `edge.keys.shared`); it serves no HTTP, and imports none of what that takes.
A worker that dies is started again, and what it held of the shared is given back. With one worker
nothing of this is in use.
"""
