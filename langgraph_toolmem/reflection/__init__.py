"""Past runs as entries: the user's words, the calls made, the verdict, and a critique where it went wrong."""
