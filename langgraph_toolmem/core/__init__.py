"""What all methods stand on."""
