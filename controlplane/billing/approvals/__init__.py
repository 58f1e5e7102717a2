"""What people give or book by hand, and the second person that larger amounts wait for."""
