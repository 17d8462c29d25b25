"""What was seen, as frozen dataclasses of plain numbers and names. No tensor gets past this point."""
