"""The language model service and its engine."""
