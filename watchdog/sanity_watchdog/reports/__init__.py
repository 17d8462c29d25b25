"""What people and tools read of a run, made from its record without torch."""
