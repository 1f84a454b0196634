"""Durable work at the edge: jobs handed in, looked at, watched, cancelled, and their results read.

What a job does, and that it is never lost, is the job service's affair; here is HTTP.
"""
