"""The decisions about mattes, pure."""
