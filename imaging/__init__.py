"""Pictures as bytes and as pixels: read with bounds, scaled, composed, written.

What the services that handle pictures share. Models, the wire and the house stay out.
"""
