"""The decisions about pictures to generate, pure."""
