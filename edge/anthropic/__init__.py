"""Anthropic's dialect: messages, their tokens counted, models, and its way to say no."""
