"""Who runs next, on which model, and which models live on the card."""
