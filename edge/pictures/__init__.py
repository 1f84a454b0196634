"""Pictures over HTTP: generations, edits, backdrops, LoRAs, and the reading of pictures sent."""
