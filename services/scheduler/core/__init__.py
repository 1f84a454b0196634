"""Pure decisions of the scheduler: `scheduler` holds the events, the others its parts."""
