"""What a long prompt costs: who sent it, when it comes again, and those who are being answered."""
