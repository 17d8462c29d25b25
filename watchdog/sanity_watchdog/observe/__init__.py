"""What can be seen of a run. Observers read tensors and never change them."""
