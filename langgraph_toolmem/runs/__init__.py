"""Messages read into runs; tools and values as data."""
