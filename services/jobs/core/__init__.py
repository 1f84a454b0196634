"""The life of jobs, pure."""
