"""HTTP and SSE in, gRPC out: the dialects clients speak. Decides nothing about who runs."""
