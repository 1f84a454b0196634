"""Matting networks behind one protocol: what they are fed, what they answer, who runs them.

`families` and `prepare` are pure; `files` looks at a file without loading it; the adapters import
their library when they are made, and live in engine processes alone.
"""
