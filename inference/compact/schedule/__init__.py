"""What each step computes and for whom. Policy only: token counts and blocks, no torch."""
