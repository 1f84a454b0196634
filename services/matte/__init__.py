"""The matting service and its engine."""
