"""What every service shares, and nothing else: errors, wire, configuration, logs, metrics."""
