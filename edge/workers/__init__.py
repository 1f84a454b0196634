"""The edge as several processes: one parent, and workers that serve.

    parent ─ handover      accepts; each connection goes to the worker that has the fewest
    choosing               which one that is (pure)
    link ─ frames          calls between a worker and its parent, both ways
    rooms                  what the parent keeps for all of them
    worker                 a worker: an edge whose connections come from its parent

The parent holds what must be right over all workers, serves no HTTP, and imports none of what that
takes. A worker that dies is started again, and what it held of the shared is given back.
With one worker nothing of this is in use.
"""
