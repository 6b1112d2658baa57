"""What the memory has done, in numbers and words."""
