"""What the edge itself costs per chat request, beside LiteLLM's proxy: see bench/README.md."""
