"""What was said, where a project keeps it: sealed, searched blindly, read under audit."""
