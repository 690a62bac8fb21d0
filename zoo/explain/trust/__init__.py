"""How far a picture of what a network looks at can be trusted."""
