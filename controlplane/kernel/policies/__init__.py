"""What projects demand of their requests, and how texts are searched for what they name."""
