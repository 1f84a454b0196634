"""`cohabit jobs`: durable work looked at, followed, ended, and its results written to files."""
